-- Sub-windows: the window is cut into equal parts, and those that still overlap
-- it count: the part of now and the cuts before it. Parts in which nothing was
-- counted take no room.
--
--   =b60000000:10::60:<list>   period, count, flags, cuts, then which part and how much

local function parts()
  local kind, list = {}, newList()

  -- partOf returns the part of a moment, begin the first moment of a part.
  local function partOf(L, t)
    local index, rest = quo(t, L.period)
    return add(mul(index, L.cuts), (quo(mul(rest, L.cuts), L.period)))
  end

  local function begin(L, part)
    local index, rest = quo(part, L.cuts)
    return add(mul(index, L.period), ceil(mul(rest, L.period), L.cuts))
  end

  local function forgotten(L, part)
    return sub(begin(L, add(add(part, L.cuts), 1)), L.t)
  end

  -- slide forgets the parts that no longer count, n cuts wide.
  local function slide(L, now, cuts)
    local ahead = add(now, cuts)
    if L.total ~= 0 and less(ahead, L.at) then -- a clock fault: all move back
      local by = sub(L.at, ahead)
      L.at, L.base, L.mended = ahead, sub(L.base, by), true
    end
    while L.total ~= 0 and less(add(L.base, cuts), now) do list.dropOldest(L) end
  end

  function kind.read(L, state, from, t)
    L.t, L.now = t, partOf(L, t)
    if L.small then L.most = 4294967295 end
    list.clear(L)
    if not state then return end
    list.parse(L, state, from)
    slide(L, L.now, L.cuts)
  end

  function kind.write(L) return L.form .. list.format(L) end

  -- newest returns the part that is charged: that of now, or a later one where
  -- the clock stepped back.
  local function newest(L)
    if L.total ~= 0 then return most(L.now, L.at) end
    return L.now
  end

  function kind.admits(L, c) return not less(L.count, add(L.total, c)) end
  function kind.charge(L, c) list.push(L, newest(L), c) end
  function kind.mark(L) return text(newest(L)) end
  function kind.remaining(L) return sub(L.count, L.total) end

  function kind.reset(L)
    if L.total == 0 then return 0 end
    return forgotten(L, L.at)
  end

  function kind.wait(L, c)
    return forgotten(L, list.decisive(L, sub(L.total, sub(L.count, c))))
  end

  function kind.giveBack(L, mark, n) list.takeOut(L, n, whole(mark)) end
  function kind.refund(L, n) list.takeBack(L, n) end
  function kind.inUse(L) return L.total end

  -- adopt puts each count into the new part that holds the end of its old one,
  -- so that nothing stops counting earlier: the newest, as many as the limit has.
  function kind.adopt(L, old)
    if old.letter ~= 'b' or old.span ~= L.span then return false end
    list.copy(L, old)
    list.keep(L, L.count)
    if old.cuts ~= L.cuts then
      list.shift(L, function(at) return least(sub(ceil(mul(add(at, 1), L.cuts), old.cuts), 1), L.now) end)
    end
    return true
  end

  return kind
end
