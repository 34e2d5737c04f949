-- The bucket that is filled in lumps: how many tokens are missing, and the
-- period in which that was so.
--
--   =i60000000:7:10:<index><missing>   period, count, capacity; then doubles

local function interval()
  local kind = { level = true }
  local pack, unpack = struct.pack, struct.unpack

  function kind.prepare(L, period, count, capacity)
    L.period, L.count = tonumber(period), tonumber(count)
    L.capacity, L.deepest = bounds(capacity)
  end

  function kind.allow(L, capacity) L.capacity = capacity end

  function kind.read(L, state, from, t)
    L.t, L.now = t, floor(t / L.period)
    L.missing, L.index, L.low, L.token = 0, L.now, nil, nil
    if not state then return end
    local index, missing = unpack('>dd', state, from)
    if from + 16 <= #state then L.low, L.token = unpack('>d', state, from + 16), string.sub(state, from + 24) end
    if index > L.now then -- the clock stepped back
      L.missing, L.index = missing, L.now + 1
      L.mended = index > L.index
    else
      L.missing = most(missing - (L.now - index) * L.count, 0)
    end
  end

  function kind.write(L)
    local state = L.form .. pack('>dd', L.index, L.missing)
    if L.token then state = state .. pack('>d', L.low) .. L.token end
    return state
  end

  function kind.admits(L, c) return L.missing + c <= L.capacity end

  function kind.charge(L, c, _, reported)
    local missing, top = L.missing + c, most(L.deepest, L.missing)
    if reported then top = least(floor(LONGEST / L.period) * L.count, LONGEST) end
    if L.token then
      L.low = least(L.low, L.missing)
      if missing > top then L.low = 0 end
    end
    L.missing = least(missing, top)
  end

  function kind.backlog(L) return L.missing end
  function kind.worth(_, n) return n end
  function kind.lower(L, by) L.missing = most(L.missing - by, 0) end

  function kind.remaining(L) return most(L.capacity - L.missing, 0) end
  function kind.reset(L) return kind.wait(L, 0) end

  function kind.wait(L, n)
    if L.missing <= n then return 0 end
    return (L.index + math.ceil((L.missing - n) / L.count)) * L.period - L.t
  end

  kind.refund = kind.lower

  function kind.adopt(L, own)
    if L.missing > L.capacity then return false end
    kind.prepare(L, own[1], own[2], own[3])
    return true
  end

  return kind
end
