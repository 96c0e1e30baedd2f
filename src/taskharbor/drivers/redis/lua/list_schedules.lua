-- Names of schedules, in order. at: a sorted set of lib/schedules_read.lua; start: a bound as ZRANGEBYLEX takes it; count: how many.
-- needs: 10_keys 28_utf8
-- with: schedules_read
local at, start, count = unpack(ARGS, 4)
return try('ZRANGEBYLEX', key(HOME, at), start, '+', 'LIMIT', '0', count) or {}
