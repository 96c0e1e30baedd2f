-- Change the limit of a group, and offer it at once if it has room now. In: gid, limit. Out: OK.
even_if_full()
local gid = argument[3]
call('SET', group_key(q, gid, 'limit'), n(argument[4]))
th.offer_group(q, gid)
th.finish()
return 'OK'
