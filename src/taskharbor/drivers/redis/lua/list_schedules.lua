-- Names of schedules, in order. at: a sorted set of lib/schedules_read.lua; start: a bound as ZRANGEBYLEX takes it; count: how many.
-- needs: 10_keys 28_utf8
-- with: schedules_read
local now, cluster, home, at, start, count = unpack(cmsgpack.unpack(ARGV[1]))
return try('ZRANGEBYLEX', key(HOME, at), start, '+', 'LIMIT', '0', count) or {}
