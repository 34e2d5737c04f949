-- The bucket that is filled in lumps: how many tokens are missing, and the
-- period in which that was so.
--
--   =i60000000:7:10:29920489:3   period, count, capacity, index, missing

local function interval()
  local kind = { level = true }

  function kind.read(L, state, from, t)
    L.t = t
    L.now = quo(t, L.period)
    L.missing, L.index = 0, L.now
    if not state then return end
    local index, missing, low, token = string.match(state, '^(%d+):(%d+):?(%d*):?(.*)$', from)
    if low ~= '' then L.low, L.token = whole(low), token end
    index = whole(index)
    L.missing = least(whole(missing), mul(L.capacity, 2))
    if less(L.now, index) then -- the clock stepped back
      L.index = add(L.now, 1)
      L.mended = less(L.index, index)
    else
      L.missing = sub(L.missing, mul(sub(L.now, index), L.count))
    end
  end

  function kind.write(L)
    local state = L.form .. text(L.index) .. ':' .. text(L.missing)
    if L.token then state = state .. ':' .. text(L.low) .. ':' .. L.token end
    return state
  end

  function kind.admits(L, c) return not less(L.capacity, add(L.missing, c)) end

  function kind.charge(L, c)
    local missing, most = add(L.missing, c), mul(L.capacity, 2)
    if L.token then
      L.low = least(L.low, L.missing)
      if less(most, missing) then L.low = 0 end
    end
    L.missing = least(missing, most)
  end

  function kind.backlog(L) return L.missing end
  function kind.worth(_, n) return n end
  function kind.lower(L, by) L.missing = sub(L.missing, by) end

  -- lumps returns the wait until the given number of tokens has been added.
  local function lumps(L, tokens)
    if tokens == 0 then return 0 end
    return sub(mul(add(L.index, ceil(tokens, L.count)), L.period), L.t)
  end

  function kind.remaining(L) return sub(L.capacity, L.missing) end
  function kind.reset(L) return lumps(L, L.missing) end
  function kind.wait(L, c) return lumps(L, sub(L.missing, sub(L.capacity, c))) end
  function kind.refund(L, n) L.missing = sub(L.missing, n) end
  function kind.inUse(L) return L.missing end
  function kind.adopt() return false end

  return kind
end
