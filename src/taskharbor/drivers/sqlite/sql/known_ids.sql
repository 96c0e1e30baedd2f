-- Which of these ids are stored.
-- in: ids as JSON          out: an id each
SELECT job.id FROM json_each(?) AS asked CROSS JOIN taskharbor_jobs AS job ON job.id = asked.value
