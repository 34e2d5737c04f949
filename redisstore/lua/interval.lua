-- The bucket that is filled in lumps: how many tokens are missing, and the
-- period in which that was so.
--
--   i60000000:7:10:29920489:3   period, count, capacity, index, missing

local function interval()
  local kind = {}

  -- fill returns what is missing at L.t and the period that is so of: that of
  -- t, or the one after where the clock stepped back.
  local function fill(L, missing, index)
    if less(L.now, index) then return missing, add(L.now, 1) end
    return sub(missing, mul(sub(L.now, index), L.count)), L.now
  end

  function kind.read(L, state, t)
    L.t = t
    L.now = quo(t, L.period)
    L.missing, L.index = 0, L.now
    local span, count, capacity, index, missing
    if state then
      span, count, capacity, index, missing = string.match(state, '^i(%d+n?):(%d+):(%d+):(%d+):(%d+)$')
    end
    if not span then return end
    index, missing = whole(index), whole(missing)
    if span .. ':' .. count .. ':' .. capacity == L.form then
      L.missing, L.index = fill(L, missing, index)
      L.mended = less(L.index, index)
      return
    end
    -- the time that filling up takes on average is kept, up to one burst
    local period, unit = spanOf(span)
    local now = quo(mul(quo(t, L.unit), unit), period)
    if not less(now, index) then missing = sub(missing, mul(sub(now, index), whole(count))) end
    local kept = ceil(mul(mul(mul(missing, period), L.count), L.unit),
      mul(mul(whole(count), L.period), unit))
    L.missing = least(kept, L.capacity)
  end

  function kind.write(L)
    return 'i' .. L.form .. ':' .. text(L.index) .. ':' .. text(L.missing)
  end

  function kind.admits(L, c) return not less(L.capacity, add(L.missing, c)) end

  function kind.charge(L, c)
    L.missing = least(add(L.missing, c), mul(L.capacity, 2))
  end

  function kind.mark(L) return text(L.index) .. ':' .. text(L.missing) end

  -- lumps returns the wait until so many tokens have been added.
  local function lumps(L, tokens)
    if tokens == 0 then return 0 end
    return sub(mul(add(L.index, ceil(tokens, L.count)), L.period), L.t)
  end

  function kind.remaining(L) return sub(L.capacity, L.missing) end
  function kind.reset(L) return lumps(L, L.missing) end
  function kind.wait(L, c) return lumps(L, sub(L.missing, sub(L.capacity, c))) end

  -- giveBack takes the charge as the last in line: of what was missing right
  -- after it, the lumps since then have filled the front.
  function kind.giveBack(L, mark, n)
    local index, missing = string.match(mark, '^(%d+):(%d+)$')
    local unforgiven = fill(L, whole(missing), whole(index))
    L.missing = sub(L.missing, least(n, unforgiven))
  end

  function kind.refund(L, n) L.missing = sub(L.missing, n) end

  return kind
end
