-- Change the limit of a group, and offer it at once if it has room now. In: gid, limit. Out: OK.
even_if_full()
local gid, limit = unpack(ARGS, 4)
call('SET', group_key(q, gid, 'limit'), n(limit))
th.offer_group(q, gid)
th.finish()
return 'OK'
