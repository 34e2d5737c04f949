-- The fixed window: when it ends, and its count. Windows are [k·W, (k+1)·W) since
-- the Unix epoch, or a calendar's, whose bounds come with the call, or from first,
-- that of the key: from t on, if it has none.
--
--   =w60000000:<end><used>           period; then doubles, the end in µs
--   =cday Europe/Paris:<end><used>   unit and zone

local function window()
  local kind = {}

  -- bounds returns the ends of the window of t and of the one after; nothing where
  -- a calendar's bounds do not hold t.
  local function bounds(L, t)
    if L.first then return t + L.period, t + 2 * L.period end
    if not L.bounds then
      local ends = t - t % L.period + L.period
      return ends, ends + L.period
    end
    local begins = L.bounds
    for i = 1, #begins - 2 do
      if t >= begins[i] and t < begins[i + 1] then return begins[i + 1], begins[i + 2] end
    end
  end

  function kind.read(L, state, from, t)
    local ends, after = bounds(L, t)
    L.t, L.used, L.ends, L.stale = t, 0, ends, not ends
    if L.stale or not state then return end
    local at, used = struct.unpack('>dd', state, from)
    if at == ends then
      L.used = used
    elseif (at > ends or L.first and at > t) and used ~= 0 then -- the clock stepped back, or it is the key's own
      L.used, L.ends = used, least(at, after)
      L.mended = at > after
    end
  end

  function kind.write(L) return L.form .. struct.pack('>dd', L.ends, L.used) end

  function kind.admits(L, c) return L.used + c <= L.count end
  function kind.charge(L, c) L.used = least(L.used + c, MOST) end
  function kind.mark(L) return text(L.ends) end
  function kind.remaining(L) return most(L.count - L.used, 0) end
  function kind.reset(L) return L.used == 0 and 0 or L.ends - L.t end
  function kind.wait(L) return most(L.ends - L.t, 1) end -- the last window there is has no end

  function kind.giveBack(L, mark, n)
    if tonumber(mark) == L.ends then kind.refund(L, n) end
  end

  function kind.refund(L, n) L.used = most(L.used - n, 0) end

  return kind
end
