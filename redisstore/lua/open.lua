-- Open reservations. Beside each state that has some there is a hash:
--
--   id        drawn with the first of them, forgotten by a reset
--   open      token, end, low, of each, in order
--
-- To settle one is to rewrite history: the state becomes what it would be had
-- the charge been its true cost all along. A bucket does it by how low it has
-- been since: low is the least backlog from right after a charge up to the next
-- reservation, and what is given back passes through every low from its own on,
-- each letting through no more than itself. The last low and the token of its
-- reservation stand in the state, so that a take has only that to look at. A
-- state that does not have the last token of the hash has been forgotten, or has
-- got other numbers, meanwhile, and nothing is given back.
--
-- Beyond mostOpen of a key the oldest are forgotten here: these give nothing back.
--
-- The charge of a request on several nodes, which may have to be given back a
-- moment later, has no record: where no reservation is open its token, made of
-- its time, stands in the state for a second; else it gives back by the last low.
-- Many charges share such a token, and so its low, the least since the first of them.
-- Their marks say besides how much the backlog was after each, when, and the low then.
-- From there the backlog falls by no more than time and what is given back, and by
-- all that is given back the low falls too, below zero if need be.

local mostOpen = 1024
local markFor = 1000000 -- µs

-- markCharge marks a charge that was just made so that it can be given back, and
-- returns the mark.
local function markCharge(L, t)
  if not L.kind.level then return L.kind.mark(L) end
  local begun = L.token and string.byte(L.token) >= 128 and -struct.unpack('>d', L.token)
  if not L.token or begun and begun + markFor < t then
    L.low, L.token = L.kind.backlog(L), struct.pack('>d', -most(t, 1))
  end
  if L.kind.marks and L.kind.marks(L) then return L.token .. struct.pack('>ddd', L.used, t, L.low) end
  return L.token
end

-- release gives back what markCharge has marked. It reports whether none of it stands:
-- where a reservation was opened or settled meanwhile, or a time mark replaced, that is
-- not known.
local function release(L, mark, n)
  if not L.kind.level then
    L.kind.giveBack(L, mark, n)
    return true
  end
  if L.token ~= string.sub(mark, 1, 8) then return L.kind.backlog(L) == 0 end
  local worth = L.kind.worth(L, n)
  L.low = least(L.low, L.kind.backlog(L))
  local back, forgiven = least(worth, most(L.low, 0)), 0
  if #mark > 8 and L.kind.marks(L) then
    local used, at, low = struct.unpack('>ddd', mark, 9)
    forgiven = most(L.t - at, 0) * L.div -- at most, by time
    back = most(back, least(worth, used - forgiven - (low - L.low)))
    L.low = L.low - back
  else
    L.low = most(L.low - back, 0)
  end
  L.kind.lower(L, back)
  return back + forgiven >= worth or L.kind.backlog(L) == 0
end

-- openAt returns the open reservations, if they are those of the state: token, end,
-- low, of each.
local function openAt(key, L)
  local packed = redis.call('HGET', key, 'open')
  local all = packed and cmsgpack.unpack(packed) or {}
  if L.kind.level and all[#all - 2] ~= L.token then return {} end
  if #all > 0 and L.kind.level then all[#all] = L.low end
  return all
end

-- keepOpen writes them.
local function keepOpen(key, L, all)
  if #all == 0 then
    L.low, L.token, L.open = nil, nil, nil
    return redis.call('HDEL', key, 'open')
  end
  if L.kind.level then
    L.token, L.low = all[#all - 2], all[#all]
  else
    L.open = 0
    for i = 2, #all, 3 do L.open = most(L.open, all[i]) end
    L.cutFrom, L.cutAt = L.cutFrom or 0, L.cutAt or 0
  end
  redis.call('HSET', key, 'open', cmsgpack.pack(all))
end

-- closeAt takes the reservation at a place out. stands says whether any of it
-- stays charged: then, in a queue, requests behind those before it keep their delays.
local function closeAt(L, all, i, stands)
  if L.queue and stands then
    for k = 3, i - 1, 3 do all[k] = 0 end
  end
  if i > 3 then all[i - 1] = least(all[i - 1], all[i + 2]) end
  for _ = 1, 3 do table.remove(all, i) end
end

-- openReservation notes a charge that was just made, so that it can be settled.
local function openReservation(key, L, token, ends, t)
  local all = openAt(key, L)
  for i = #all - 2, 1, -3 do
    if t >= all[i + 1] then closeAt(L, all, i, true) end
  end
  while #all >= 3 * mostOpen do closeAt(L, all, 1, false) end
  local n = #all
  all[n + 1], all[n + 2], all[n + 3] = token, ends, L.kind.level and L.kind.backlog(L) or 0
  keepOpen(key, L, all)
end

-- closeReservation takes a reservation out, and gives n units of it back.
local function closeReservation(key, L, token, mark, n, stands)
  local all, at = openAt(key, L), nil
  for i = 1, #all, 3 do
    if all[i] == token then at = i end
  end
  if not L.kind.level then
    if n ~= 0 then L.kind.giveBack(L, mark, n) end
  elseif at then
    local last = #all
    all[last] = least(all[last], L.kind.backlog(L))
    if n ~= 0 and not (L.queue and at + 2 < last) then
      local back = L.kind.worth(L, n)
      for k = at + 2, last, 3 do
        back = least(back, all[k])
        all[k] = most(all[k] - back, 0)
      end
      L.kind.lower(L, back)
    end
  end
  if at then
    closeAt(L, all, at, stands)
    keepOpen(key, L, all)
  end
end

-- keepsOpen reports whether a limit has to know its open reservations: of others,
-- a window or part gives back what it still counts.
local function keepsOpen(L) return L.kind.level or L.letter == 'l' end

-- stands reports whether none of the keys of an open reservation of several slots
-- was reset: each with its length before it, they follow what settling needs to know.
local function stands(kept)
  local at, from = 5, string.find(kept[3], '&', 1, true)
  while from and from < #kept[3] do
    local n, first = string.match(kept[3], '^(%d+):()', from + 1)
    if redis.call('HGET', string.sub(kept[3], first, first + n - 1), 'id') ~= kept[at] then return false end
    at, from = at + 2, first + n - 1
  end
  return true
end

-- recorded looks at a record: whether it is over, unknown or reset, and of one
-- that is settled the answer of then.
local function recorded(record, t)
  local kept = redis.call('GET', record)
  if not kept then return true end
  local open = string.byte(kept) == 111
  kept = cmsgpack.unpack(string.sub(kept, 2))
  if t >= tonumber(open and kept[2] or kept[3]) then return true end
  if open then return not stands(kept), nil, { 'o', kept[3], kept[4] } end
  for i = 4, #kept, 2 do
    if redis.call('HGET', kept[i], 'id') ~= kept[i + 1] then return true end
  end
  return false, { 's', kept[1], kept[2] }
end

-- reserve remembers what was charged and where to, in a record:
--
--   cost, end, about, cells, then of each layer id and mark
local function reserve(layers, t, cost, ttl, token, about)
  local ends, n = t + ttl, #layers
  local kept = { text(cost), text(ends), about, overflowed or '' }
  token = string.sub(token, 1, 8)
  for i, L in ipairs(layers) do
    local key = KEYS[n + i]
    local id = redis.call('HGET', key, 'id')
    if not id then
      id = token
      redis.call('HSET', key, 'id', id)
    end
    if not virtual then
      local ms = alive(ttl)
      local left = redis.call('PTTL', key)
      if left < 0 or left < tonumber(ms) then redis.call('PEXPIRE', key, ms) end
    end
    if cost ~= 0 and keepsOpen(L) then openReservation(key, L, token, ends, t) end
    kept[#kept + 1] = id
    kept[#kept + 1] = L.kind.mark and L.kind.mark(L) or ''
  end
  keep(KEYS[#KEYS], 'o' .. cmsgpack.pack(kept), ttl)
end

-- settle replaces the cost by the true one, once. What is kept of it then is the
-- answer, with what the caller has to know to read it, and which states it is of.
local function settle(layers, t, cost, token, meta, standing)
  local record, n = KEYS[#KEYS], #layers
  local over, settled = recorded(record, t)
  if over or settled then return settled end
  local found = cmsgpack.unpack(string.sub(redis.call('GET', record), 2))
  for i = 1, n do
    if redis.call('HGET', KEYS[n + i], 'id') ~= found[3 + 2 * i] then return end
  end
  token = string.sub(token, 1, 8)
  for i, L in ipairs(layers) do
    local reserved, actual = units(L, tonumber(found[1])), units(L, cost)
    closeReservation(KEYS[n + i], L, token, found[4 + 2 * i], most(reserved - actual, 0), cost ~= 0)
    if reserved < actual then charge(L, actual - reserved) end
    L.changed = true
  end
  local out, digits = standing(), {}
  for i, v in ipairs(out) do digits[i] = text(v) end
  local kept = { meta, table.concat(digits, ' '), found[2] }
  for i = 1, n do kept[2 + 2 * i], kept[3 + 2 * i] = KEYS[n + i], found[3 + 2 * i] end
  keep(record, 's' .. cmsgpack.pack(kept), found[2] - t)
  return out
end
