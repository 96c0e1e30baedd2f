-- Storing the jobs of a schedule as enqueue does; those that are known stay as they are.
function th.store_scheduled(jobs)
  if #jobs == 0 then return end
  local known, fresh = th.known_ids(jobs), {}
  for _, job in ipairs(jobs) do
    if not known[job[1]] then
      fresh[#fresh + 1] = job
      known[job[1]] = job[2]
    end
  end
  th.store(fresh)
end
