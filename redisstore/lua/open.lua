-- Open reservations. Beside each state that has some there is a hash:
--
--   id        drawn with the first of them, forgotten by a reset
--   open      token, end, low, of each, in order
--   n         how many have not been settled
--   excuses   token, until, units, mark, of each that excuses denials, in order
--
-- To settle a reservation is to rewrite history: the state becomes what it would be if
-- the true cost had been charged from the start. A bucket does it by its lows: low is
-- the least backlog from right after a charge up to the next reservation. Units that are
-- given back pass through every low from that of their reservation on, and each lets
-- through no more than itself. The last low and the token of its reservation stand in
-- the state, so that a take looks at nothing else. A state without the last token of the
-- hash has been forgotten meanwhile, or converted to another limit: then nothing is
-- given back.
--
-- A key keeps mostOpen reservations here. The oldest beyond that give nothing back.
--
-- A charge of a request on several nodes may have to be given back a moment later. It
-- has no record. If a reservation is open, it gives back by the last low. If none is, a
-- token made of its time stands in the state for a second. Many charges share the token
-- and its low, the least backlog since the first of them. The mark of each says also the
-- backlog after it, when that was, and the low then. From there, the backlog falls only
-- with time and by what is given back; by that the low falls too, even below zero.

local mostOpen = 1024
local markFor = 1000000 -- µs
local excusedFor = 1000000 -- µs, the longest wait of a denial that is excused
local settledFor = 600000000 -- µs, how long it is kept how a reservation was settled

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

-- release gives back a charge by its mark. It reports whether all of it was given back:
-- that is not known if a reservation was opened or settled meanwhile, or the token replaced.
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

-- openAt returns the open reservations of a state, token, end and low of each; none if
-- they belong to an earlier state of the key.
local function openAt(key, L)
  local packed = redis.call('HGET', key, 'open')
  local all = packed and cmsgpack.unpack(packed) or {}
  if L.kind.level and all[#all - 2] ~= L.token then return {} end
  if #all > 0 and L.kind.level then all[#all] = L.low end
  return all
end

-- keepOpen writes the open reservations.
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

-- closeAt takes out the reservation at index i. stands says that some of it stays
-- charged: then, in a queue, later requests keep their delays, whatever earlier
-- reservations give back.
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

-- excusesAt returns the reservations that excuse denials at t.
local function excusesAt(key, t)
  local packed, live = redis.call('HGET', key, 'excuses'), {}
  if not packed then return live end
  local all = cmsgpack.unpack(packed)
  for i = 1, #all, 4 do
    if t < all[i + 1] then
      for k = i, i + 3 do live[#live + 1] = all[k] end
    end
  end
  return live
end

-- excuse makes a charge that was just made excuse denials until a moment. Of a key, the
-- newest mostOpen charges do.
local function excuse(key, token, t, ends, n, mark)
  local all = excusesAt(key, t)
  if #all >= 4 * mostOpen then
    for _ = 1, 4 do table.remove(all, 1) end
  end
  local at = #all
  all[at + 1], all[at + 2], all[at + 3], all[at + 4] = token, ends, n, mark
  redis.call('HSET', key, 'excuses', cmsgpack.pack(all))
end

-- excuseNoMore is called when a charge is not open any more.
local function excuseNoMore(key, token, t)
  local all, left = excusesAt(key, t), {}
  if #all == 0 then return end
  for i = 1, #all, 4 do
    if all[i] ~= token then
      for k = i, i + 3 do left[#left + 1] = all[k] end
    end
  end
  if #left == 0 then return redis.call('HDEL', key, 'excuses') end
  redis.call('HSET', key, 'excuses', cmsgpack.pack(left))
end

-- excusable returns by how much a bucket's backlog would fall if all excuses were given
-- back. Each reservation passes on at most its low; in a queue, one that stays passes on nothing.
local function excusable(key, L, some)
  local all, units, back = openAt(key, L), {}, 0
  if #all == 0 then return 0 end
  for i = 1, #some, 4 do units[some[i]] = some[i + 2] end
  all[#all] = least(all[#all], L.kind.backlog(L))
  for i = 1, #all, 3 do
    local n = units[all[i]]
    if L.queue and not n then back = 0 end
    back = least(back + L.kind.worth(L, n or 0), all[i + 2])
  end
  return back
end

-- without returns a layer as it would be if all excuses were given back. In logs and parts,
-- units that a refund has taken before count as given back too.
local function without(key, L, some, t)
  local copy = {}
  for k, v in pairs(L) do copy[k] = v end
  if L.kind.level then
    L.kind.lower(copy, excusable(key, L, some))
    return copy
  end
  for i = 1, #some, 4 do
    local n, mark = some[i + 2], tonumber(some[i + 3])
    if L.letter == 'l' then
      if t < mark + L.period then copy.total = most(copy.total - n, 0) end
    elseif L.letter == 'b' then
      if L.now <= mark + L.cuts then copy.total = most(copy.total - n, 0) end
    else
      L.kind.giveBack(copy, some[i + 3], n)
    end
  end
  return copy
end

-- excused reports whether a cost that a layer denies would pass if all excuses were given
-- back. A key that shares an overflow key is not excused.
local function excused(L, cost, t)
  if L.banned > 0 or L.own or cost * L.weight > L.capacity then return false end
  local key = string.gsub(L.key, '}:', '}::open:', 1)
  local some = excusesAt(key, t)
  return #some > 0 and admits(without(key, L, some, t), cost)
end

-- closeReservation takes out a reservation, and gives back n of its units.
local function closeReservation(key, L, token, mark, n, stands)
  excuseNoMore(key, token, L.loaded)
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

-- keepsOpen reports whether a limit needs to know its open reservations. Windows and parts
-- do not: they give back what they still count.
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

-- recorded reads a record: whether it is over, unknown or reset, and if it is settled the
-- answer of its settlement.
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

-- gone reports whether a layer, whose open reservations are at key, is to raise a reservation
-- that is over, unknown or reset. In a record, open or settled, the ids are at 5, 7 and so on.
local function gone(L, key, t)
  if L.raised == '' then return false end
  if recorded(L.raised, t) then return true end
  local kept, id = cmsgpack.unpack(string.sub(redis.call('GET', L.raised), 2)), redis.call('HGET', key, 'id')
  for i = 5, #kept, 2 do
    if kept[i] == id then return false end
  end
  return true
end

-- countOpen changes how many reservations of a state have not been settled.
local function countOpen(key, by)
  local n = (tonumber(redis.call('HGET', key, 'n')) or 0) + by
  redis.call('HSET', key, 'n', text(most(n, 0)))
  return n
end

-- reserve writes a record of what was charged, and where:
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
    countOpen(key, 1)
    if not virtual then
      local ms = alive(ttl)
      local left = redis.call('PTTL', key)
      if left < 0 or left < tonumber(ms) then redis.call('PEXPIRE', key, ms) end
    end
    if cost ~= 0 and keepsOpen(L) then openReservation(key, L, token, ends, t) end
    local mark = L.kind.mark and L.kind.mark(L) or ''
    if cost ~= 0 and L.excuse then excuse(key, token, t, least(t + L.excuse, ends), units(L, cost), mark) end
    kept[#kept + 1] = id
    kept[#kept + 1] = mark
  end
  keep(KEYS[#KEYS], 'o' .. cmsgpack.pack(kept), ttl)
end

-- settle replaces the cost by the true one, once. The record then keeps the answer, what
-- the caller needs to read it, and which states it is of.
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
    if countOpen(KEYS[n + i], -1) <= 0 and not virtual then
      redis.call('PEXPIRE', KEYS[n + i], alive(least(found[2] - t, settledFor)))
    end
  end
  local out, digits = standing(), {}
  for i, v in ipairs(out) do digits[i] = text(v) end
  local kept = { meta, table.concat(digits, ' '), found[2] }
  for i = 1, n do kept[2 + 2 * i], kept[3 + 2 * i] = KEYS[n + i], found[3 + 2 * i] end
  keep(record, 's' .. cmsgpack.pack(kept), least(found[2] - t, settledFor))
  return out
end
