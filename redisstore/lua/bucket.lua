-- Buckets and the queue: the backlog is what has been used and not yet forgiven, in
-- 1/div µs; one unit of cost is step of these. The state is the moment at which the
-- backlog is gone, after the parameters that it drains by:
--
--   =g10000:1:100:<moment>        step, div, capacity; then µs, as a double
--   =g60000000:7:3:<moment><rest> where div is not 1 with a rest in 1/div µs,
--                                 in four bytes
--   =g10000:1:100d500:<moment>    where the limit has a greatest debt of its own
--
-- A queue has q instead of g. Then may follow, as a double, how far the backlog is above
-- the greatest debt, to which only the push of a mode can bring it; and while reservations
-- are open, what open.lua describes.

local function bucket()
  local kind = { level = true }
  local pack, unpack = struct.pack, struct.unpack

  function kind.prepare(L, step, div, capacity)
    L.step, L.div, L.queue = tonumber(step), tonumber(div), L.letter == 'q'
    local deepest
    L.capacity, deepest = bounds(capacity)
    L.deepest = deepest * L.step
  end

  -- allow has a limit of another capacity look at the state.
  function kind.allow(L, capacity) L.capacity = capacity end

  function kind.read(L, state, from, t)
    L.t, L.used, L.late, L.behind, L.low, L.token = t, 0, nil, 0, nil, nil
    if not state then return end
    L.used, from = (unpack('>d', state, from) - t) * L.div, from + 8
    if L.div ~= 1 then L.used, from = L.used + unpack('>I4', state, from), from + 4 end
    L.used, L.late = most(L.used, 0), most(-L.used, 0) -- how long it has been empty
    local top = L.deepest
    if (#state + 1 - from) % 16 == 8 then top, from = top + unpack('>d', state, from), from + 8 end
    if from <= #state then L.low, L.token = unpack('>d', state, from), string.sub(state, from + 8) end
    if L.used > top then L.used, L.mended = top, true end -- the clock stepped back
  end

  function kind.write(L)
    local used = L.used - L.behind
    local ahead = floor(used / L.div)
    local state = L.form .. pack('>d', L.t + ahead)
    if L.div ~= 1 then state = state .. pack('>I4', used - ahead * L.div) end
    if L.used > L.deepest then state = state .. pack('>d', L.used - L.deepest) end
    if L.token then state = state .. pack('>d', L.low) .. L.token end
    return state
  end

  -- free is in units, since the capacity may be of another limit than step.
  local function free(L) return L.capacity - math.ceil(L.used / L.step) end

  function kind.admits(L, c) return c <= free(L) end

  -- charge: promised says that the request was told its delay. Then no place before it in
  -- a queue is freed any more, and none that a debt cuts off. A reported charge, which
  -- passed in a process, is not cut off at the greatest debt.
  function kind.charge(L, c, promised, reported)
    local used, top = L.used + c * L.step, reported and LONGEST or most(L.deepest, L.used)
    if L.token then
      L.low = least(L.low, L.used)
      if used > top and kind.marks(L) then
        L.low = L.low - top
      elseif used > top or promised and L.queue then
        L.low = 0
      end
    end
    L.used = least(used, top)
  end

  -- marks reports whether the token is of charges that may be given back, whose
  -- marks say more.
  function kind.marks(L) return not L.queue and string.byte(L.token) >= 128 end

  function kind.backlog(L) return L.used end
  function kind.worth(L, n) return n * L.step end
  function kind.lower(L, by) L.used = most(L.used - by, 0) end

  function kind.remaining(L) return most(free(L), 0) end
  function kind.reset(L) return math.ceil(L.used / L.div) end
  function kind.wait(L, n) return math.ceil(most(L.used - n * L.step, 0) / L.div) end

  -- delay is that under the numbers of the limit which asks.
  function kind.delay(L)
    if not L.queue then return 0 end
    if L.own then return math.ceil(shareUp(L.used, tonumber(L.own[1]), L.step) / L.own[2]) end
    return kind.reset(L)
  end
  function kind.refund(L, n)
    local used = most(L.used - n * L.step, 0)
    if L.token and kind.marks(L) then L.low = L.low - (L.used - used) end
    L.used = used
  end

  -- adopt converts the state to the parameters of another limit. The units in use may be a
  -- fraction, which is rounded up. If they exceed the capacity, it returns false, and
  -- changes nothing.
  function kind.adopt(L, own)
    local step = tonumber(own[1])
    local used = shareUp(L.used, step, L.step)
    if used > step * L.capacity then return false end
    kind.prepare(L, own[1], own[2], own[3])
    L.used = used
    return true
  end

  return kind
end
