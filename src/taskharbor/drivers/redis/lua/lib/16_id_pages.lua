-- The index of a queue: the ids of the jobs that this driver stored, in their order, in pages. A page is a sorted set `th:ids:<bound>`
-- of ids from its bound on, up to the next bound; `th:ids` holds the bounds, the first of which is empty. Redis keeps such a small set
-- as one block of bytes, a quarter of what an id costs in a large set. Only this file and 26_id_pages_walk touch these keys.
-- No page is empty. One that is missing or holds something else was lost; then `th:count`, the number of ids, is not a number until the
-- next sweep counts them.
-- Only the server compares texts: Lua would compare them by the rules of a language.

local PAGE = 64       -- ids at most; beyond 128 Redis turns a small set into a large one for good

-- The bound of the page of an id. false: there is none, or the first was lost; nil: `th:ids` holds something else.
local function page_of(q, id)
  local found = try('ZRANGE', key(q, 'th:ids'), '[' .. id, '-', 'BYLEX', 'REV', 'LIMIT', '0', '1')
  return found and (found[1] or false)
end

local function page_after(q, bound)
  return call('ZRANGE', key(q, 'th:ids'), '(' .. bound, '+', 'BYLEX', 'LIMIT', '0', '1')[1]
end

-- New pages for rising ids, from the one at `first` on. The first page begins at `bound`.
local function new_pages(q, ids, first, bound)
  while first <= #ids do
    local last, at = min(first + PAGE - 1, #ids), key(q, 'th:ids:') .. bound
    call('DEL', at)
    call('ZADD', at, unpack(with_score('0', {unpack(ids, first, last)})))
    call('ZADD', key(q, 'th:ids'), '0', bound)
    first, bound = last + 1, ids[last + 1]
  end
end

-- Rising ids, from the one at `first` on, come right after a page. They go into the next page if they fit: otherwise falling ids
-- would get a page each.
local function put_after(q, bound, ids, first)
  local number, pages = #ids - first + 1, key(q, 'th:ids:')
  local following = number > 0 and number < PAGE and page_after(q, bound)
  local size = following and try('ZCARD', pages .. following) or 0
  if size == 0 or size + number > PAGE / 2 then return new_pages(q, ids, first, ids[first]) end
  call('RENAME', pages .. following, pages .. ids[first])
  call('ZADD', pages .. ids[first], unpack(with_score('0', {unpack(ids, first)})))
  call('ZREM', key(q, 'th:ids'), following)
  call('ZADD', key(q, 'th:ids'), '0', ids[first])
end

-- Add rising ids to the page that all of them belong to. Nearly always they are greater than all that are there: the page is filled,
-- and new pages follow it. Otherwise it is divided where they belong. Returns how many were new; nil if some that are there lie
-- between them, and then nothing has changed.
local function add_to_page(q, bound, ids, number)
  local at = key(q, 'th:ids:') .. bound
  local size = try('ZCARD', at)
  if not size or size == 0 then
    call('DEL', at)
    call('SET', key(q, 'th:count'), '?')
    size = 0
  end
  if size + number <= PAGE then
    if number == 1 then return call('ZADD', at, '0', ids[1]) end
    return call('ZADD', at, unpack(with_score('0', ids)))
  end
  local last = ids[number]
  if call('ZRANGEBYLEX', at, '[' .. ids[1], '[' .. last, 'LIMIT', '0', '1')[1] then return nil end
  local behind = call('ZRANGEBYLEX', at, '(' .. last, '+')
  if behind[1] then
    call('ZREM', at, unpack(behind))
    put_after(q, bound, behind, 1)
  end
  local room = min(number, max(0, PAGE - size + #behind))
  if room > 0 then call('ZADD', at, unpack(with_score('0', {unpack(ids, 1, room)}))) end
  put_after(q, bound, ids, room + 1)
  return number
end

-- Add ids. `bound`: they rise, and the first belongs to that page (false: there is none yet).
local function add_ids(q, ids, bound)
  local number, added = #ids, nil
  if bound == false and call('EXISTS', key(q, 'th:ids')) == 1 then      -- another program removed the first bound
    call('ZADD', key(q, 'th:ids'), '0', '')
    bound = ''
  end
  if bound == false then
    call('SET', key(q, 'th:count'), '0')
    new_pages(q, ids, 1, '')
    added = number
  elseif bound and (number == 1 or page_of(q, ids[number]) == bound) then
    added = add_to_page(q, bound, ids, number)
  end
  if not added then      -- one by one
    added = 0
    for _, id in ipairs(ids) do
      local its = page_of(q, id)
      if its then added = added + (add_to_page(q, its, {id}, 1) or 0) else add_ids(q, {id}, false) end
    end
  end
  redis.pcall('INCRBY', key(q, 'th:count'), added == 1 and '1' or added)
end
