-- The sliding log: every charge of the last period, charges of one moment as
-- one, no more than its newest count units. How it is written, and what is
-- done to a log by itself, stands in quicklog.lua; here it is read and written
-- whole.

local function log()
  local kind, list = {}, newList()

  -- keep drops all but the newest units.
  local function keep(L, units)
    while less(units, L.total) do
      local at, n = list.oldest(L)
      local excess = sub(L.total, units)
      if less(excess, n) then
        if L.pos > #L.body then
          L.units = sub(n, excess)
        else
          local gap, _, pos = list.packed(L.body, L.pos)
          L.body, L.pos = list.pack(gap, sub(n, excess)) .. string.sub(L.body, pos), 1
        end
        L.total = units
        return
      end
      list.dropOldest(L)
    end
  end

  function kind.read(L, state, t)
    L.t = t
    list.clear(L)
    if not state or string.sub(state, 1, #L.head) ~= L.head then return end
    if string.byte(state, #L.head + 1) == 42 then
      local first, last
      L.base, L.at, L.units, L.total, first, last = struct.unpack(logNumbers, state, #L.head + 2)
      L.body, L.pos = string.sub(state, first + 1, last), 1
    else
      list.parse(L, state, #L.head + 1)
    end
    while L.total ~= 0 and not less(t, add(list.oldest(L), L.period)) do list.dropOldest(L) end
    local ahead = add(t, L.period)
    if less(ahead, L.at) then -- a clock fault
      local all = list.all(L)
      for _, e in ipairs(all) do e.at = least(e.at, ahead) end
      list.rebuild(L, all)
      L.mended = true
    end
    keep(L, L.count)
  end

  function kind.write(L)
    if type(L.at) == 'number' and type(L.total) == 'number' then
      return formatLog(L.head, L.base, L.at, L.units, L.total, string.sub(L.body, L.pos))
    end
    return L.head .. list.format(L)
  end

  function kind.admits(L, c) return not less(L.count, add(L.total, c)) end

  function kind.charge(L, c)
    local at = L.t
    if L.total ~= 0 then at = most(at, L.at) end
    list.push(L, at, least(c, L.count))
    keep(L, L.count)
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
  function kind.refund(L, n) list.takeOut(L, n, nil) end

  return kind
end
