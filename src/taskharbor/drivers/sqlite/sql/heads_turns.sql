-- The groups of a queue that stand in turn, first the first.
-- in: queue, how many          out: name, how many more may run
SELECT name, coalesce(group_limit, 1) - inflight FROM taskharbor_groups INDEXED BY taskharbor_groups_turn
WHERE queue = ? AND turn IS NOT NULL
ORDER BY turn
LIMIT ?
