-- The flag of a queue. In: pause, resume or ask. Out: OK, how many flags were removed, whether there is one.
local at, what = key(q, 'paused'), unpack(ARGS, 4)
if what == 'ask' then return call('EXISTS', at) end
even_if_full()
if what == 'pause' then return call('SET', at, '1') end
local taken = call('DEL', at)
th.hint(q)
th.finish()
return taken
