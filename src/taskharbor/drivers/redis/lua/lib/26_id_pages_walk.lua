-- Removing ids from the index, and walking along it: see 16_id_pages.

local FEW_IDS = 10    -- a page with this many left joins the one before it

-- Remove an empty page. The next page takes the place of the first.
local function drop_page(q, bound)
  local at, pages = key(q, 'th:ids'), key(q, 'th:ids:')
  while bound == '' do
    local following = page_after(q, '')
    if not following then return call('DEL', at, key(q, 'th:count')) end
    call('ZREM', at, following)
    if (try('ZCARD', pages .. following) or 0) > 0 then return call('RENAME', pages .. following, pages) end
    call('DEL', pages .. following)
    call('SET', key(q, 'th:count'), '?')
  end
  call('ZREM', at, bound)
end

local function join_page(q, bound)
  local at, pages = key(q, 'th:ids'), key(q, 'th:ids:')
  local before = call('ZRANGE', at, '(' .. bound, '-', 'BYLEX', 'REV', 'LIMIT', '0', '1')[1]
  local size = before and try('ZCARD', pages .. before) or 0
  if size == 0 or size + FEW_IDS > PAGE / 2 then return end
  call('ZADD', pages .. before, unpack(with_score('0', call('ZRANGE', pages .. bound, 0, -1))))
  call('DEL', pages .. bound)
  call('ZREM', at, bound)
end

local function remove_id(q, id)
  local bound = page_of(q, id)
  if not bound then return end
  local at = key(q, 'th:ids:') .. bound
  local gone = try('ZREM', at, id)
  local left = gone and call('ZCARD', at) or 0
  if not gone or (gone == 0 and left == 0) then
    call('DEL', at)
    call('SET', key(q, 'th:count'), '?')
  elseif gone == 1 then
    redis.pcall('INCRBY', key(q, 'th:count'), '-1')
  end
  if left == 0 then drop_page(q, bound) elseif left == FEW_IDS and gone == 1 and bound ~= '' then join_page(q, bound) end
end

local function has_id(q, id)
  local bound = page_of(q, id)
  return bound and try('ZSCORE', key(q, 'th:ids:') .. bound, id) and true or false
end

-- Up to `count` ids after `last`, in their order; the id to go on after (nil: that was all); and the bounds of lost pages that were met.
-- Only the ids that belong to a page count, so that a walk ends whatever another program put in place of a page.
local function ids_after(q, last, count)
  local ids, lost = {}, {}
  local bound, from = page_of(q, last), last == '' and '-' or '(' .. last
  if bound == false and call('EXISTS', key(q, 'th:ids')) == 1 then bound = '' end
  while bound do
    local at, following = key(q, 'th:ids:') .. bound, page_after(q, bound)
    local found = try('ZRANGEBYLEX', at, from, following and '(' .. following or '+', 'LIMIT', 0, count - #ids)
    for _, id in ipairs(found or {}) do ids[#ids + 1] = id end
    local size = found and #found or 0
    if size == 0 and found and from == '(' .. last then      -- the last one of its page, if it is a page
      size = #call('ZRANGEBYLEX', at, '[' .. bound, '[' .. last, 'LIMIT', '0', '1')
    end
    if size == 0 then lost[#lost + 1] = bound end
    if #ids == count then return ids, ids[count], lost end
    if #lost > count then return ids, bound, lost end
    bound, from = following, following and '[' .. following
  end
  return ids, nil, lost
end

-- The same downwards: up to `count` ids before `last` ('': from the last id on).
local function ids_before(q, last, count)
  local ids, lost, pages = {}, {}, key(q, 'th:ids:')
  local to, bound = '(' .. last, nil
  if last == '' then
    to = '+'
    local found = try('ZRANGE', key(q, 'th:ids'), '+', '-', 'BYLEX', 'REV', 'LIMIT', '0', '1')
    bound = found and found[1]
  else
    bound = page_of(q, last)
    if bound == false and call('EXISTS', key(q, 'th:ids')) == 1 then bound = '' end
  end
  while bound do
    local from = bound == '' and '-' or '[' .. bound
    local found = try('ZRANGE', pages .. bound, to, from, 'BYLEX', 'REV', 'LIMIT', 0, count - #ids)
    for _, id in ipairs(found or {}) do ids[#ids + 1] = id end
    local size = found and #found or 0
    if size == 0 and found and to == '(' .. last then      -- it was the first one of its page, if it is a page
      local following = page_after(q, bound)
      size = #call('ZRANGEBYLEX', pages .. bound, '[' .. last, following and '(' .. following or '+', 'LIMIT', '0', '1')
    end
    if size == 0 then lost[#lost + 1] = bound end
    if #ids == count then return ids, ids[count], lost end
    if #lost > count and bound ~= '' then return ids, bound, lost end
    to = '(' .. bound
    bound = bound ~= '' and (call('ZRANGE', key(q, 'th:ids'), to, '-', 'BYLEX', 'REV', 'LIMIT', '0', '1')[1] or '') or nil
  end
  return ids, nil, lost
end

-- Remove lost pages from the index.
local function drop_lost(q, lost)
  for index = #lost, 1, -1 do
    call('DEL', key(q, 'th:ids:') .. lost[index])
    drop_page(q, lost[index])
  end
  if #lost > 0 and call('EXISTS', key(q, 'th:ids')) == 1 then call('SET', key(q, 'th:count'), '?') end
end

-- Count the ids that are in their pages again, at one moment: a million of them have some 16,000 pages.
local function recount_ids(q)
  local number, pages, bounds = 0, key(q, 'th:ids:'), call('ZRANGE', key(q, 'th:ids'), 0, -1)
  for index, bound in ipairs(bounds) do
    local to = bounds[index + 1] and '(' .. bounds[index + 1] or '+'
    number = number + (try('ZLEXCOUNT', pages .. bound, bound == '' and '-' or '[' .. bound, to) or 0)
  end
  if number > 0 and try('GET', key(q, 'th:count')) ~= n(number) then call('SET', key(q, 'th:count'), n(number)) end
end
