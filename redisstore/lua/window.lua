-- The fixed window: its number and its count. Windows are [k·W, (k+1)·W) since
-- the Unix epoch, or a calendar's, whose bounds come with the call.
--
--   w60000000:29920489:5   what windows these are, index, used

local function window()
  local kind = {}

  -- calendar finds the window of t and the one after among the bounds: index
  -- of the first, then where each begins and the last one ends.
  local function calendar(L, t)
    local begins = L.bounds
    for i = 2, #begins - 2 do
      if not less(t, begins[i]) and less(t, begins[i + 1]) then
        return add(begins[1], i - 2), begins[i + 1], begins[i + 2]
      end
    end
  end

  function kind.read(L, state, t)
    L.t, L.used = t, 0
    local index, finish, after
    if L.bounds then
      index, finish, after = calendar(L, t)
      L.stale = not index
      if L.stale then return end
    else
      index = quo(t, L.period)
      finish = mul(add(index, 1), L.period)
    end
    L.index, L.finish = index, finish
    if not state or string.sub(state, 1, #L.head) ~= L.head then return end
    local at, used = string.match(state, '^(%d+):(%d+)$', #L.head + 1)
    at, used = whole(at), whole(used)
    if equal(at, index) then
      L.used = used
    elseif less(index, at) then -- the clock stepped back
      L.index, L.used = add(index, 1), used
      L.finish = after or add(finish, L.period)
      L.mended = less(L.index, at)
    end
  end

  function kind.write(L) return L.head .. text(L.index) .. ':' .. text(L.used) end

  function kind.admits(L, c) return not less(L.count, add(L.used, c)) end
  function kind.charge(L, c) L.used = atMost(add(L.used, c)) end
  function kind.mark(L) return text(L.index) end
  function kind.remaining(L) return sub(L.count, L.used) end

  function kind.reset(L)
    if L.used == 0 then return 0 end
    return sub(L.finish, L.t)
  end

  -- The last window there is has no end.
  function kind.wait(L) return most(sub(L.finish, L.t), 1) end

  function kind.giveBack(L, mark, n)
    if equal(whole(mark), L.index) then L.used = sub(L.used, n) end
  end

  function kind.refund(L, n) L.used = sub(L.used, n) end

  return kind
end
