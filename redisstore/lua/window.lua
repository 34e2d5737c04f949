-- The fixed window: its number and its count. Windows are [k·W, (k+1)·W) since
-- the Unix epoch, or a calendar's, whose bounds come with the call and whose end
-- stands in the state.
--
--   =w60000000:10::29920489:5                         period, count, flags, index, used
--   =cday Europe/Paris:10::20488:5:1770159600000000   unit and zone, …, end

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

  -- former reads a calendar's window of a form that is not in force, whose bounds
  -- are not known: it counts until it ends.
  local function former(L, index, used, finish, t)
    L.index, L.finish, L.used = index, finish, used
    if not less(t, finish) then L.used = 0 end
  end

  function kind.read(L, state, from, t)
    L.t, L.used = t, 0
    local index, finish, after
    local at, used, ends
    if state then
      at, used, ends = string.match(state, '^(%d+):(%d+):?(%d*)$', from)
      at, used = whole(at), whole(used)
    end
    if L.letter == 'c' and not L.bounds then return former(L, at, used, whole(ends), t) end
    if L.bounds then
      index, finish, after = calendar(L, t)
      L.stale = not index
      if L.stale then return end
    else
      index = quo(t, L.period)
      finish = mul(add(index, 1), L.period)
    end
    L.index, L.finish = index, finish
    if not state then return end
    if equal(at, index) then
      L.used = used
    elseif less(index, at) and used ~= 0 then -- the clock stepped back
      L.index, L.used = add(index, 1), used
      L.finish = after or add(finish, L.period)
      L.mended = less(L.index, at)
    end
  end

  function kind.write(L)
    local state = L.form .. text(L.index) .. ':' .. text(L.used)
    if L.letter == 'c' then state = state .. ':' .. text(L.finish) end
    return state
  end

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
  function kind.inUse(L) return L.used end

  function kind.adopt(L, old)
    if old.letter ~= L.letter or old.span ~= L.span then return false end
    if L.letter == 'c' then -- the former may not know the window of now
      if not less(old.index, L.index) then L.index, L.used = old.index, old.used end
    else
      L.index, L.finish, L.used = old.index, old.finish, old.used
    end
    L.used = least(L.used, L.count)
    return true
  end

  return kind
end
