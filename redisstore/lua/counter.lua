-- The sliding counter: the window that was counted in, its count and that of
-- the window before, which weighs by how much of it still overlaps:
--
--   =s60000000:10::29920489:5:3   period, count, flags, index, cur, prev

local function counter()
  local kind = {}

  function kind.read(L, state, from, t)
    L.t, L.cur, L.prev = t, 0, 0
    L.index = quo(t, L.period)
    L.left = sub(mul(add(L.index, 1), L.period), t) -- of the window before that overlaps
    L.finish = add(t, L.left)
    if not state then return end
    local index, cur, prev = string.match(state, '^(%d+):(%d+):(%d+)$', from)
    index, cur, prev = whole(index), whole(cur), whole(prev)
    if equal(index, L.index) then
      L.cur, L.prev = cur, prev
    elseif less(L.index, index) then -- the clock stepped back: as the next window begins
      L.index, L.cur, L.prev = add(L.index, 1), cur, prev
      L.left, L.finish = L.period, add(L.finish, L.period)
      L.mended = less(L.index, index)
    elseif equal(add(index, 1), L.index) then
      L.prev = cur
    end
  end

  function kind.write(L)
    return L.form .. text(L.index) .. ':' .. text(L.cur) .. ':' .. text(L.prev)
  end

  function kind.admits(L, c)
    local room = sub(L.count, L.cur)
    if less(room, c) then return false end
    room = sub(room, c)
    if L.relaxed then return less(mul(L.prev, L.left), mul(add(room, 1), L.period)) end
    return not less(mul(room, L.period), mul(L.prev, L.left))
  end

  function kind.charge(L, c) L.cur = atMost(add(L.cur, c)) end
  function kind.mark(L) return text(L.index) end

  function kind.remaining(L)
    local weighed, rest = quo(mul(L.prev, L.left), L.period)
    if rest ~= 0 and not L.relaxed then weighed = add(weighed, 1) end
    return sub(sub(L.count, L.cur), weighed)
  end

  function kind.reset(L)
    if L.cur ~= 0 then return sub(add(L.finish, L.period), L.t) end
    if L.prev ~= 0 then return sub(L.finish, L.t) end
    return 0
  end

  -- overlap returns the most of a window of n units that may overlap for it to
  -- weigh no more than room; relaxed, less than room + 1.
  local function overlap(L, room, n)
    if n == 0 then return L.period end
    local most
    if L.relaxed then
      most = sub(ceil(mul(add(room, 1), L.period), n), 1)
    else
      most = quo(mul(room, L.period), n)
    end
    return least(most, L.period)
  end

  function kind.wait(L, c)
    local room = sub(L.count, L.cur)
    if not less(room, c) then
      return sub(sub(L.finish, overlap(L, sub(room, c), L.prev)), L.t)
    end
    return sub(sub(add(L.finish, L.period), overlap(L, sub(L.count, c), L.cur)), L.t)
  end

  function kind.giveBack(L, mark, n)
    mark = whole(mark)
    if equal(mark, L.index) then
      L.cur = sub(L.cur, n)
    elseif equal(add(mark, 1), L.index) then
      L.prev = sub(L.prev, n)
    end
  end

  function kind.refund(L, n)
    local here = least(n, L.cur)
    L.cur, L.prev = sub(L.cur, here), sub(L.prev, sub(n, here))
  end

  function kind.inUse(L) return add(L.cur, ceil(mul(L.prev, L.left), L.period)) end

  function kind.adopt(L, old)
    if old.letter ~= 's' or old.span ~= L.span then return false end
    L.index, L.left, L.finish = old.index, old.left, old.finish
    L.cur, L.prev = least(old.cur, L.count), least(old.prev, L.count)
    return true
  end

  return kind
end
