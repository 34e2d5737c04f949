-- The sliding log: every charge of the last period, charges of one moment as
-- one, no more than its newest count units. How it is written, and what is
-- done to a log by itself, stands in fastpath_log.lua; here it is read and written
-- whole.

local function log()
  local kind, list = {}, newList()

  function kind.read(L, state, from, t)
    L.t = t
    list.clear(L)
    if not state then return end
    if string.byte(state, from) == 33 then
      local ends, cutFrom, cutAt
      ends, cutFrom, cutAt, from = string.match(state, '^!(%d+):(%d+):(%d+)!()', from)
      L.open, L.cutFrom, L.cutAt = whole(ends), whole(cutFrom), whole(cutAt)
    end
    if string.byte(state, from) == 42 then
      local first, last
      L.base, L.at, L.units, L.total, first, last = struct.unpack(logNumbers, state, from + 1)
      L.body, L.pos, L.last = state, first + 1, last
      if first == last then L.base = L.at end
    else
      list.parse(L, state, from)
    end
    if not less(t, add(L.at, L.period)) then return list.clear(L) end
    while not less(t, add(L.base, L.period)) do list.dropOldest(L) end
    local ahead = add(t, L.period)
    if less(ahead, L.at) then -- a clock fault
      list.clamp(L, ahead)
      L.mended = true
    end
  end

  function kind.write(L)
    local head = L.form
    if L.open then head = head .. '!' .. text(L.open) .. ':' .. text(L.cutFrom) .. ':' .. text(L.cutAt) .. '!' end
    if type(L.at) == 'number' and type(L.total) == 'number' then
      return formatLog(head, L.base, L.at, L.units, L.total, list.entries(L))
    end
    return head .. list.format(L)
  end

  function kind.admits(L, c) return not less(L.count, add(L.total, c)) end

  -- gather charges a log with open reservations. What is older than the newest
  -- count units may matter again when they give back: it is not cut off, but
  -- kept as one entry at its newest moment.
  local function gather(L, at, c)
    local from = at
    if L.total ~= 0 then
      from = L.base
      if equal(from, L.cutAt) then from = L.cutFrom end
    end
    if made then list.keep(L, sub(made.int64, c)) end
    list.push(L, at, c)
    local excess = sub(L.total, L.count)
    if excess == 0 then return end
    local newest = list.gather(L, excess)
    if less(from, newest) then L.cutFrom, L.cutAt = from, newest end
  end

  function kind.charge(L, c)
    local at = L.t
    if L.total ~= 0 then at = most(at, L.at) end
    if L.open and less(L.t, L.open) then
      if c ~= 0 then gather(L, at, atMost(c)) end
      return
    end
    list.push(L, at, least(c, L.count))
    list.keep(L, L.count)
  end

  function kind.mark(L) return text(L.total ~= 0 and L.at or L.t) end
  function kind.remaining(L) return sub(L.count, L.total) end

  function kind.reset(L)
    if L.total == 0 then return 0 end
    return sub(add(L.at, L.period), L.t)
  end

  function kind.wait(L, c)
    local enough = sub(L.total, sub(L.count, c))
    return sub(add(list.decisive(L, enough), L.period), L.t)
  end

  function kind.giveBack(L, mark, n)
    local at = whole(mark)
    if not less(L.t, add(at, L.period)) then return end
    if L.open and not less(at, L.cutFrom) and less(at, L.cutAt) then at = L.cutAt end
    list.takeOut(L, n, at)
  end

  function kind.refund(L, n) list.takeBack(L, n) end
  function kind.inUse(L) return L.total end

  -- adopt keeps the dates of the newest units, as far as the log goes.
  function kind.adopt(L, old)
    if old.letter ~= 'l' then return false end
    list.copy(L, old)
    if L.total == 0 then return true end
    if not less(L.t, add(L.at, L.period)) then
      list.clear(L)
      return true
    end
    while not less(L.t, add(L.base, L.period)) do list.dropOldest(L) end
    list.keep(L, L.count)
    return true
  end

  return kind
end
