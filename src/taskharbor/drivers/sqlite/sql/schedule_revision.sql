-- What a change has to know of a schedule. Its body, which may be large, is not read.
-- in: name, the largest size of a body          out: queue, revision, next_at, whether its body can be one
SELECT queue, revision, next_at, typeof(body) = 'blob' AND length(body) <= :size
FROM taskharbor_schedules WHERE name = :name
