-- Buckets and the queue: the backlog, what has been used and not yet forgiven,
-- in 1/div µs; one unit of cost is step of these. The state is the moment at
-- which the backlog is gone:
--
--   =g10000:1:100:<moment>        step, div, capacity; then µs, as a double
--   =g60000000:7:3:<moment><rest> where div is not 1 with a rest in 1/div µs,
--                                 in four bytes
--   =g60000000:7:3::<moment>:<rest>  both in digits, where they are large
--
-- q in the place of g is a queue. G and Q are of limits whose numbers are large,
-- and always in digits. What stands behind it while reservations are open is in
-- open.lua.

local function bucket()
  local kind = { level = true }
  local pack, unpack = struct.pack, struct.unpack

  -- prepare computes what follows from a limit's numbers.
  function kind.prepare(L)
    L.full = mul(L.capacity, L.step)
    L.debt = mul(L.full, 2)
    L.packed = not string.find(L.letter, '[GQ]')
  end

  function kind.read(L, state, from, t)
    L.t, L.used = t, 0
    if not state then return end
    local at, rest = nil, 0
    if string.byte(state, from) == 58 then
      local low, token
      at, rest, low, token = string.match(state, '^:(%d+):(%d+):?(%d*):?(.*)$', from)
      at, rest = whole(at), whole(rest)
      if low ~= '' then L.low, L.token = whole(low), token end
    else
      at = unpack('>d', state, from)
      from = from + 8
      if L.div ~= 1 then
        rest = unpack('>I4', state, from)
        from = from + 4
      end
      if from <= #state then L.low, L.token = unpack('>d', state, from), string.sub(state, from + 8) end
    end
    if less(at, t) then return end
    local used = add(mul(sub(at, t), L.div), rest)
    if less(L.debt, used) then used, L.mended = L.debt, true end
    L.used = used
  end

  function kind.write(L)
    local ahead, rest = quo(L.used, L.div)
    local at = add(L.t, ahead)
    if not L.packed or type(at) ~= 'number' then
      local state = L.form .. ':' .. text(at) .. ':' .. text(rest)
      if L.token then state = state .. ':' .. text(L.low) .. ':' .. L.token end
      return state
    end
    local state = L.form .. pack('>d', at)
    if L.div ~= 1 then state = state .. pack('>I4', rest) end
    if L.token then state = state .. pack('>d', L.low) .. L.token end
    return state
  end

  function kind.admits(L, c)
    return not less(L.full, add(L.used, mul(c, L.step)))
  end

  -- charge: promised says that the request has got its delay. Then no
  -- place before it in a queue is freed any more, and none that a debt cuts off.
  function kind.charge(L, c, promised)
    local used = add(L.used, mul(c, L.step))
    if L.token then
      L.low = least(L.low, L.used)
      if less(L.debt, used) and kind.marks(L) then
        L.low = L.low - L.debt
      elseif less(L.debt, used) or promised and L.queue then
        L.low = 0
      end
    end
    L.used = least(used, L.debt)
  end

  -- marks reports whether the token is of charges that may be given back, whose
  -- marks say more.
  function kind.marks(L)
    return L.packed and not L.queue and type(L.debt) == 'number' and type(L.t) == 'number' and string.byte(L.token) >= 128
  end

  function kind.backlog(L) return L.used end
  function kind.worth(L, n) return mul(n, L.step) end
  function kind.lower(L, by) L.used = sub(L.used, by) end

  function kind.remaining(L) return (quo(sub(L.full, L.used), L.step)) end
  function kind.reset(L) return ceil(L.used, L.div) end
  function kind.delay(L)
    if L.queue then return kind.reset(L) end
    return 0
  end

  function kind.wait(L, c)
    return ceil(sub(add(L.used, mul(c, L.step)), L.full), L.div)
  end

  function kind.refund(L, n)
    local used = sub(L.used, mul(n, L.step))
    if L.token and kind.marks(L) then L.low = L.low - (L.used - used) end
    L.used = used
  end

  function kind.inUse(L) return ceil(L.used, L.step) end

  -- adopt takes over what is in use under another bucket: as many units, a
  -- fraction, up to the capacity. Delays that requests have got stand: the
  -- next start is one unit after the last of them.
  function kind.adopt(L, old)
    if not old.step then return false end
    if old.used == 0 then return true end
    local used = least(ceil(mul(old.used, L.step), old.step), L.full)
    if L.queue and old.queue then
      local after = add(mul(old.used, L.div), mul(L.step, old.div))
      used = most(used, ceil(sub(after, mul(old.step, L.div)), old.div))
    end
    L.used = least(used, L.debt)
    return true
  end

  return kind
end
