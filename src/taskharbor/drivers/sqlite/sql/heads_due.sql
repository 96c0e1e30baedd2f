-- Jobs of a queue that became due, or whose lease ended, in a span of time: those that a reserve would move first. All
-- columns stand before the payload in the row, so that a large one is not walked through.
-- in: state, queue, after, until, how many          out: the columns below
SELECT num, moment, CAST(time AS INTEGER), CAST(rank AS INTEGER), CAST(arrival AS INTEGER), id, grp
FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
WHERE state = ? AND queue = ? AND moment > ? AND moment <= ? AND typeof(moment) = 'integer'
ORDER BY moment, num
LIMIT ?
