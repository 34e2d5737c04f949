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

  -- copy takes over the entries of another layer.
  function list.copy(L, from)
    L.base, L.at, L.units, L.total, L.ahead, L.behind = from.base, from.at, from.units, from.total, nil, nil
    L.body, L.pos, L.last = from.body, from.pos, from.last
  end

  -- parse reads what follows the head of a state.
  function list.parse(L, state, from)
    local base, at, units, total, pos = string.match(state, '^(%d+):(%d+):(%d+):(%d+):()', from)
    L.base, L.at, L.units, L.total = whole(base), whole(at), whole(units), whole(total)
    L.body, L.pos, L.last = state, pos, #state
    if pos > L.last then L.base = L.at end
  end

  -- entries returns the packed entries as bytes.
  function list.entries(L) return string.sub(L.body, L.pos, L.last) end

  function list.format(L)
    return text(L.base) .. ':' .. text(L.at) .. ':' .. text(L.units) .. ':' .. text(L.total) .. ':' .. list.entries(L)
  end

  -- put has other bytes for the packed entries.
  local function put(L, body)
    L.body, L.pos, L.last, L.ahead, L.behind = body, 1, #body, nil, nil
  end

  wide = function(c, i, last)
    local v = c[last] % 64
    for k = last - 1, i, -1 do v = add(mul(v, 128), c[k] - 128) end
    return v
  end

  -- packed returns an entry as bytes.
  local function packed(gap, units)
    if type(units) == 'number' then return packEntry(gap, units) end
    local bytes, n = {}, 0
    while not less(units, 64) do
      local low
      units, low = quo(units, 128)
      n = n + 1
      bytes[n] = low + 128
    end
    bytes[n + 1] = units + 64
    packNumber(bytes, n + 1, gap, 0)
    return string.char(unpack(bytes))
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
    L.base, L.total, L.pos = add(L.base, gap), sub(L.total, units), pos
  end

  local function dropNewest(L)
    if L.pos > L.last then return list.clear(L) end
    local gap
    gap, L.units, L.last = before(L, L.last)
    L.at = sub(L.at, gap)
  end

  -- keep drops all but the newest units.
  function list.keep(L, units)
    while less(units, L.total) do
      local excess, alone = sub(L.total, units), L.pos > L.last
      local gap, n, pos = 0, L.units, nil
      if not alone then gap, n, pos = after(L, L.pos) end
      if less(excess, n) then
        if alone then
          L.units = sub(n, excess)
        else
          put(L, packed(gap, sub(n, excess)) .. string.sub(L.body, pos, L.last))
        end
        L.total = units
        return
      end
      list.dropOldest(L)
    end
  end

  -- newest adds units to the newest entry, or as one after it, which then holds at
  -- most L.most, or what an int64 holds. It returns what is to be packed.
  local function newest(L, at, units)
    local out = ''
    if L.total == 0 then
      list.clear(L)
      L.base, L.at = at, at
    elseif not equal(at, L.at) then
      out = packed(sub(at, L.at), L.units)
      L.units = 0
    end
    local had = L.units
    L.at, L.units = at, atMost(add(had, units))
    if L.most then L.units = least(L.units, L.most) end
    L.total = add(L.total, sub(L.units, had))
    return out
  end

  function list.push(L, at, units)
    local out = newest(L, at, units)
    if out ~= '' then put(L, list.entries(L) .. out) end
  end

  -- gather merges the oldest entries into one, up to the entry with which excess
  -- units are older. It takes that entry's time, which gather returns.
  function list.gather(L, excess)
    local at, pos, counted = L.base, L.pos, 0
    while pos <= L.last do
      local gap, units, following = after(L, pos)
      counted = add(counted, units)
      if not less(counted, excess) then
        if pos ~= L.pos then put(L, packed(gap, counted) .. string.sub(L.body, following, L.last)) end
        L.base = at
        return at
      end
      at, pos = add(at, gap), following
    end
    L.units = L.total
    put(L, '')
    L.base = L.at
    return L.at
  end

  -- shift gives each entry the time that `to` makes of its own, in the same order.
  function list.shift(L, to)
    local all, at, pos, out = {}, L.base, L.pos, {}
    while pos <= L.last do
      local gap, units, following = after(L, pos)
      all[#all + 1] = { at, units }
      at, pos = add(at, gap), following
    end
    if L.total ~= 0 then all[#all + 1] = { L.at, L.units } end
    list.clear(L)
    for i = 1, #all do out[i] = newest(L, to(all[i][1]), all[i][2]) end
    put(L, table.concat(out))
  end

  -- back goes through the packed entries, newest first, to one that is earlier than
  -- a time or, together with those it has passed, more than n units: when that was,
  -- its units, where the one before it ends, and how many units it has passed. All
  -- are numbers, and it does little else than count: a log may have 10,000.
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
    if not less(time, L.at) then return end
    if type(L.at) == 'number' and type(L.total) == 'number' then
      local at, units, last, passed = back(L, time, L.total)
      L.units, L.at = L.units + passed, time
      if at then
        return put(L, string.sub(L.body, L.pos, last) .. packed(time - at, units))
      end
      put(L, '')
      L.base = time
      return
    end
    while less(time, L.at) do
      if L.pos > L.last then
        L.base, L.at = time, time
        return
      end
      local gap, units, last = before(L, L.last)
      local at = sub(L.at, gap)
      if less(at, time) then
        put(L, string.sub(L.body, L.pos, last) .. packed(sub(time, at), units))
        L.at = time
        return
      end
      L.at, L.units, L.last = at, atMost(add(L.units, units)), last
    end
  end

  -- takeBack takes up to n units out of the entries, newest first.
  function list.takeBack(L, n)
    if not less(n, L.total) then return list.clear(L) end
    if type(L.at) == 'number' and type(L.total) == 'number' and not less(n, L.units) then
      local at, units, last, passed = back(L, 0, n - L.units)
      L.total, L.units = L.total - n, passed + L.units + units - n
      L.at, L.last, L.behind = at, last, nil
      return
    end
    while n ~= 0 do
      local some = least(L.units, n)
      L.units, L.total, n = sub(L.units, some), sub(L.total, some), sub(n, some)
      if L.units == 0 then dropNewest(L) end
    end
  end

  -- drop takes up to n units out of the packed entry from pos to last.
  local function drop(L, n, at, gap, units, pos, last)
    local back = least(units, n)
    L.total = sub(L.total, back)
    local following = string.sub(L.body, last + 1, L.last)
    if less(back, units) then
      put(L, string.sub(L.body, L.pos, pos - 1) .. packed(gap, sub(units, back)) .. following)
    elseif pos == L.pos then
      L.base, L.pos = add(at, gap), last + 1
    else -- the entry before reaches to the one after
      local more, n, front = before(L, pos - 1)
      put(L, string.sub(L.body, L.pos, front) .. packed(add(more, gap), n) .. following)
    end
  end

  -- seek goes through the packed entries, oldest first, to the one at a time or the
  -- first that is later, or with which enough units have been passed: when that was,
  -- and where it begins. All times are numbers, and this does little else than count:
  -- a log may have 10,000.
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

  -- seekBack is seek from the newest on, to the one at a time or the first that is
  -- earlier.
  local function seekBack(L, time)
    local body, at, last = L.body, L.at, L.last
    local from, c = last + 1, {}
    while at > time and last >= L.pos do
      local k = last - from + 1
      if k <= entrySize and from > L.pos then
        from = math.max(last - entryBytes + 1, L.pos)
        c, k = { byte(body, from, last) }, last - from + 1
      end
      local gap = c[k]
      k = k - 1
      local b = c[k] or 0
      while b >= 128 do
        gap, k = gap * 128 + b - 128, k - 1
        b = c[k] or 0
      end
      if b >= 64 then -- the end of its units
        repeat k = k - 1 until (c[k] or 0) < 128
      end
      at, last = at - gap, from + k - 1
    end
    return at, last + 1
  end

  -- takeOut takes up to n units out of the entry that was at a time, which it looks
  -- for from the end that is nearer in time.
  function list.takeOut(L, n, time)
    if L.total == 0 or less(L.at, time) then return end
    if equal(L.at, time) then return list.takeBack(L, least(n, L.units)) end
    local at, last = L.at, L.last
    if type(at) == 'number' then
      local pos
      if time - L.base < at - time then
        at, pos = seek(L, time, math.huge)
      else
        at, pos = seekBack(L, time)
      end
      if at == time and pos <= last then
        local gap, units, following = after(L, pos)
        drop(L, n, at, gap, units, pos, following - 1)
      end
      return
    end
    while last >= L.pos and less(time, at) do
      local gap, units, rest = before(L, last)
      at = sub(at, gap)
      if equal(at, time) then return drop(L, n, at, gap, units, rest + 1, last) end
      last = rest
    end
  end

  -- decisive returns when the entry was with which, counted from the oldest,
  -- enough is forgotten.
  function list.decisive(L, enough)
    if type(L.at) == 'number' and type(L.total) == 'number' then return (seek(L, math.huge, enough)) end
    local at, pos, counted = L.base, L.pos, 0
    while pos <= L.last do
      local gap, units, following = after(L, pos)
      counted = add(counted, units)
      if not less(counted, enough) then return at end
      at, pos = add(at, gap), following
    end
    return L.at
  end

  return list
end
