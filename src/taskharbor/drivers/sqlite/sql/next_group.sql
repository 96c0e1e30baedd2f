-- The group of a queue whose turn it is.
-- in: queue          out: its name
SELECT name FROM taskharbor_groups INDEXED BY taskharbor_groups_turn
WHERE queue = ? AND turn IS NOT NULL
ORDER BY turn
LIMIT 1
