-- Sub-windows: the window is cut into equal parts, and those that still overlap
-- it count: the part of now and the cuts before it. Parts in which nothing was
-- counted take no room.
--
--   =b60000000:60:<list>   period, cuts, then which part and how much

local function parts()
  local kind, list = {}, newList()

  -- partOf returns the part of a moment, begin the first moment of a part.
  local function partOf(L, t)
    local index = floor(t / L.period)
    return index * L.cuts + (share(t - index * L.period, L.cuts, L.period))
  end

  local function begin(L, part)
    local index = floor(part / L.cuts)
    return index * L.period + shareUp(part - index * L.cuts, L.period, L.cuts)
  end

  local function forgotten(L, part) return begin(L, part + L.cuts + 1) - L.t end

  function kind.read(L, state, from, t)
    L.t, L.now = t, partOf(L, t)
    list.clear(L)
    if not state then return end
    list.parse(L, state, from)
    local ahead = L.now + L.cuts
    if L.total ~= 0 and ahead < L.at then -- a clock fault: all move back
      L.base, L.at, L.mended = most(L.base - (L.at - ahead), 0), ahead, true
    end
    while L.total ~= 0 and L.base + L.cuts < L.now do list.dropOldest(L) end
  end

  function kind.write(L) return L.form .. list.format(L) end

  -- newest returns the part that is charged: that of now, or a later one where
  -- the clock stepped back.
  local function newest(L)
    if L.total ~= 0 then return most(L.now, L.at) end
    return L.now
  end

  function kind.admits(L, c) return L.total + c <= L.count end
  function kind.charge(L, c) list.push(L, newest(L), c, L.most) end
  function kind.mark(L) return text(newest(L)) end
  function kind.remaining(L) return most(L.count - L.total, 0) end
  function kind.reset(L) return L.total == 0 and 0 or forgotten(L, L.at) end
  function kind.wait(L, n) return forgotten(L, list.decisive(L, L.total - n)) end
  function kind.giveBack(L, mark, n) list.takeOut(L, n, tonumber(mark)) end
  function kind.refund(L, n) list.takeBack(L, n) end

  return kind
end
