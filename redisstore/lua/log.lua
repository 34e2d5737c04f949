-- The sliding log: every charge of the last period, charges of one moment as
-- one, no more than its newest count units. How it is written, and what is
-- done to a log by itself, stands in fastpath_log.lua; here it is read and written
-- whole.

local function log()
  local kind, list = {}, newList()

  function kind.read(L, state, t)
    L.t = t
    list.clear(L)
    if not state or string.sub(state, 1, #L.head) ~= L.head then return end
    if string.byte(state, #L.head + 1) == 42 then
      local first, last
      L.base, L.at, L.units, L.total, first, last = struct.unpack(logNumbers, state, #L.head + 2)
      L.body, L.pos, L.last = state, first + 1, last
      if first == last then L.base = L.at end
    else
      list.parse(L, state, #L.head + 1)
    end
    if not less(t, add(L.at, L.period)) then return list.clear(L) end
    while not less(t, add(L.base, L.period)) do list.dropOldest(L) end
    local ahead = add(t, L.period)
    if less(ahead, L.at) then -- a clock fault
      list.clamp(L, ahead)
      L.mended = true
    end
    list.keep(L, L.count)
  end

  function kind.write(L)
    if type(L.at) == 'number' and type(L.total) == 'number' then
      return formatLog(L.head, L.base, L.at, L.units, L.total, list.entries(L))
    end
    return L.head .. list.format(L)
  end

  function kind.admits(L, c) return not less(L.count, add(L.total, c)) end

  function kind.charge(L, c)
    local at = L.t
    if L.total ~= 0 then at = most(at, L.at) end
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

  function kind.giveBack(L, mark, n) list.takeOut(L, n, whole(mark)) end
  function kind.refund(L, n) list.takeBack(L, n) end

  return kind
end
