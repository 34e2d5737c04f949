-- What the log and the parts keep: entries of (at, units), oldest first. The
-- newest stands in the head of the state, the others are packed behind it (see
-- entries.lua), so that the oldest are dropped, and the newest added or taken
-- back, without looking at the rest:
--
--   …:base:at:units:total:<entries>
--
-- base is where the oldest entry is, total the sum of all units. In a layer L
-- the packed entries are the bytes from pos to last of body.

local function newList()
  local list = {}
  local byte = string.byte

  function list.clear(L)
    L.base, L.at, L.units, L.total, L.body, L.pos, L.last = 0, 0, 0, 0, '', 1, 0
  end

  -- parse reads what follows the head of a state.
  function list.parse(L, state, from)
    local base, at, units, total, pos = string.match(state, '^(%d+):(%d+):(%d+):(%d+):()', from)
    L.base, L.at, L.units, L.total = tonumber(base), tonumber(at), tonumber(units), tonumber(total)
    L.body, L.pos, L.last = state, pos, #state
    if pos > L.last then L.base = L.at end
  end

  -- entries returns the packed entries as bytes.
  function list.entries(L) return string.sub(L.body, L.pos, L.last) end

  function list.format(L)
    return string.format('%.0f:%.0f:%.0f:%.0f:', L.base, L.at, L.units, L.total) .. list.entries(L)
  end

  -- put has other bytes for the packed entries.
  local function put(L, body)
    L.body, L.pos, L.last, L.ahead, L.behind = body, 1, #body, nil, nil
  end

  -- after returns the gap and the units of the packed entry at pos, and where the
  -- next one begins.
  local function after(L, pos)
    local window = L.ahead
    if not window or pos < window.from or pos + entrySize > window.to and window.to < L.last then
      local to = math.min(pos + entryBytes, L.last)
      window = { from = pos, to = to, bytes = { byte(L.body, pos, to) } }
      L.ahead = window
    end
    local gap, units, last = entryAfter(window.bytes, pos - window.from + 1)
    return gap, units, window.from + last
  end

  -- before returns the gap and the units of the packed entry that ends at last,
  -- and where the one before it ends.
  local function before(L, last)
    local window = L.behind
    if not window or last > window.to or last - entrySize < window.from and window.from > L.pos then
      local from = math.max(last - entryBytes, L.pos)
      window = { from = from, to = last, bytes = { byte(L.body, from, last) } }
      L.behind = window
    end
    local gap, units, k = entryBefore(window.bytes, last - window.from + 1)
    return gap, units, window.from + k - 1
  end

  function list.dropOldest(L)
    if L.pos > L.last then return list.clear(L) end
    local gap, units, pos = after(L, L.pos)
    L.base, L.total, L.pos = L.base + gap, L.total - units, pos
  end

  -- push adds units to the newest entry, or as one after it, which then holds at
  -- most so many.
  function list.push(L, at, units, limit)
    if L.total == 0 then
      list.clear(L)
      L.base, L.at = at, at
    elseif at ~= L.at then
      put(L, list.entries(L) .. packEntry(at - L.at, L.units))
      L.at, L.units = at, 0
    end
    local had = L.units
    L.units = limit and least(had + units, limit) or had + units
    L.total = L.total + L.units - had
  end

  -- gather merges the oldest entries into one, up to the entry with which excess
  -- units are older. It takes that entry's time, which gather returns. Of more than
  -- limit units the rest is dropped.
  function list.gather(L, excess, limit)
    local at, pos, counted = L.base, L.pos, 0
    while pos <= L.last do
      local gap, units, following = after(L, pos)
      counted = counted + units
      if counted >= excess then
        if pos ~= L.pos or counted > limit then
          L.total, counted = L.total - most(counted - limit, 0), least(counted, limit)
          put(L, packEntry(gap, counted) .. string.sub(L.body, following, L.last))
        end
        L.base = at
        return at
      end
      at, pos = at + gap, following
    end
    L.total = least(L.total, limit)
    L.units, L.base = L.total, L.at
    put(L, '')
    return L.at
  end

  -- back goes through the packed entries, newest first, to one that is earlier than
  -- a time or, together with those it has passed, more than n units: when that was,
  -- its units, where the one before it ends, and how many units it has passed. It
  -- does little else than count: a log may have 10,000.
  local function back(L, time, n)
    local body, at, last, first, passed = L.body, L.at, L.last, L.pos, 0
    local from, c = last + 1, {}
    while last >= first do
      local k = last - from + 1
      if k <= entrySize and from > first then
        from = math.max(last - entryBytes + 1, first)
        c, k = { byte(body, from, last) }, last - from + 1
      end
      local gap, units = c[k], 1
      k = k - 1
      local b = c[k] or 0
      while b >= 128 do
        gap, k = gap * 128 + b - 128, k - 1
        b = c[k] or 0
      end
      if b >= 64 then
        units, k = b - 64, k - 1
        b = c[k] or 0
        while b >= 128 do
          units, k = units * 128 + b - 128, k - 1
          b = c[k] or 0
        end
      end
      at, last = at - gap, from + k - 1
      if at < time or passed + units > n then return at, units, last, passed end
      passed = passed + units
    end
    return nil, nil, nil, passed
  end

  -- clamp moves entries that are later to a time.
  function list.clamp(L, time)
    if L.at <= time then return end
    local at, units, last, passed = back(L, time, L.total)
    L.units, L.at = L.units + passed, time
    if at then return put(L, string.sub(L.body, L.pos, last) .. packEntry(time - at, units)) end
    put(L, '')
    L.base = time
  end

  -- takeBack takes up to n units out of the entries, newest first.
  function list.takeBack(L, n)
    if n >= L.total then return list.clear(L) end
    if n < L.units then
      L.units, L.total = L.units - n, L.total - n
      return
    end
    local at, units, last, passed = back(L, 0, n - L.units)
    L.total, L.units = L.total - n, passed + L.units + units - n
    L.at, L.last, L.behind = at, last, nil
  end

  -- drop takes up to n units out of the packed entry from pos to last.
  local function drop(L, n, at, gap, units, pos, last)
    local back = least(units, n)
    L.total = L.total - back
    local following = string.sub(L.body, last + 1, L.last)
    if back < units then
      put(L, string.sub(L.body, L.pos, pos - 1) .. packEntry(gap, units - back) .. following)
    elseif pos == L.pos then
      L.base, L.pos = at + gap, last + 1
    else -- the entry before reaches to the one after
      local more, n, front = before(L, pos - 1)
      put(L, string.sub(L.body, L.pos, front) .. packEntry(more + gap, n) .. following)
    end
  end

  -- seek goes through the packed entries, oldest first, to the one at a time or the
  -- first that is later, or with which enough units have been passed: when that was,
  -- and where it begins. It does little else than count.
  local function seek(L, time, enough)
    local body, at, pos, last = L.body, L.base, L.pos, L.last
    local from, c, k = pos, {}, 1 -- c holds what begins at from
    while at < time and pos <= last do
      k = pos - from + 1
      if not c[k + entrySize] then
        from, c, k = pos, { byte(body, pos, math.min(pos + entryBytes, last)) }, 1
      end
      local b, units = c[k], 1
      local v, scale = 0, 1
      while b >= 128 do
        v, scale, k = v + (b - 128) * scale, scale * 128, k + 1
        b = c[k]
      end
      if b >= 64 then
        units, v, scale, k = v + (b - 64) * scale, 0, 1, k + 1
        b = c[k]
        while b >= 128 do
          v, scale, k = v + (b - 128) * scale, scale * 128, k + 1
          b = c[k]
        end
      end
      enough = enough - units
      if enough <= 0 then return at, pos end
      at, pos = at + v + b * scale, from + k
    end
    return at, pos
  end

  -- takeOut takes up to n units out of the entry that was at a time, which it looks
  -- for from the end that is nearer in time.
  function list.takeOut(L, n, time)
    if L.total == 0 or L.at < time then return end
    if L.at == time then return list.takeBack(L, least(n, L.units)) end
    local at, pos
    if time - L.base < L.at - time then
      at, pos = seek(L, time, math.huge)
    else
      local _
      at, _, pos = back(L, time + 1, math.huge) -- the newest before the moment after it
      if at then pos = pos + 1 end
    end
    if at == time and pos <= L.last then
      local gap, units, following = after(L, pos)
      drop(L, n, at, gap, units, pos, following - 1)
    end
  end

  -- decisive returns when the entry was with which, counted from the oldest,
  -- enough is forgotten.
  function list.decisive(L, enough) return (seek(L, math.huge, enough)) end

  return list
end
