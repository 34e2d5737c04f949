-- The sliding counter: the end of the window that was counted in last, its count, and the
-- count of the window before, which weighs by how much of it still overlaps:
--
--   =s60000000:<end><cur><prev>   period; then doubles, the end in µs

local function counter()
  local kind = {}

  function kind.read(L, state, from, t)
    L.t, L.cur, L.prev = t, 0, 0
    L.left = L.period - t % L.period -- of the window before that overlaps
    L.ends = t + L.left
    if not state then return end
    local at, cur, prev = struct.unpack('>ddd', state, from)
    if at == L.ends then
      L.cur, L.prev = cur, prev
    elseif at > L.ends then -- the clock stepped back: as the next window begins
      L.cur, L.prev, L.left, L.ends = cur, prev, L.period, L.ends + L.period
      L.mended = at > L.ends
    elseif at + L.period == L.ends then
      L.prev = cur
    end
  end

  function kind.write(L) return L.form .. struct.pack('>ddd', L.ends, L.cur, L.prev) end

  -- weighed returns what the window before counts for.
  local function weighed(L)
    return (L.relaxed and share or shareUp)(L.prev, L.left, L.period)
  end

  function kind.admits(L, c) return L.cur + c + weighed(L) <= L.count end
  function kind.charge(L, c) L.cur = least(L.cur + c, MOST) end
  function kind.mark(L) return text(L.ends) end
  function kind.remaining(L) return most(L.count - L.cur - weighed(L), 0) end

  function kind.reset(L)
    if L.cur ~= 0 then return L.ends + L.period - L.t end
    return L.prev ~= 0 and L.ends - L.t or 0
  end

  -- overlap returns the most of a window of n units that may overlap for it to
  -- weigh no more than room.
  local function overlap(L, room, n)
    if n == 0 then return L.period end
    if L.relaxed then return least(shareUp(room + 1, L.period, n) - 1, L.period) end
    return least(share(room, L.period, n), L.period)
  end

  function kind.wait(L, n)
    if L.cur <= n then return L.ends - overlap(L, n - L.cur, L.prev) - L.t end
    return L.ends + L.period - overlap(L, n, L.cur) - L.t
  end

  function kind.giveBack(L, mark, n)
    if tonumber(mark) == L.ends then
      L.cur = most(L.cur - n, 0)
    elseif mark + L.period == L.ends then
      L.prev = most(L.prev - n, 0)
    end
  end

  function kind.refund(L, n)
    local here = least(n, L.cur)
    L.cur, L.prev = L.cur - here, most(L.prev - (n - here), 0)
  end

  return kind
end
