-- Write back one job after a transition. What no transition changes is left out.
-- in: the columns below in their order, num
UPDATE taskharbor_jobs
SET state = ?, lined = ?, time = ?, arrival = ?, moment = ?, token = ?, worker = ?, settled = ?, settled_as = ?,
    run_at = ?, attempts = ?, lost = ?, handed_to = ?, last_error = ?, failed_at = ?, reason = ?,
    finished_at = ?, result = ?, lost_at = ?, trail = ?, error_class = ?, fingerprint = ?, note = ?
WHERE num = ?
