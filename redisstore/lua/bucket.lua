-- Buckets and the queue: the backlog, what has been used and not yet forgiven,
-- in 1/div µs; one unit of cost is step of these. The state is the moment at
-- which the backlog is gone:
--
--   517 1795229355387954               the shape of the limit, then µs
--   g60000000:7:3: 1795229355387954:6  step, div, capacity, then µs and 6/7 µs
--
-- without the space. The first, one integer, is for steps of whole
-- microseconds; below zero it is a queue's, as is the letter q. The shape, three
-- digits of a hash, tells that the limit has changed since.

local function bucket()
  local kind = {}

  -- formOf returns the shape of a limit in full.
  local function formOf(L)
    L.form = L.form or text(L.step) .. ':' .. text(L.div) .. ':' .. text(L.capacity)
    return L.form
  end

  -- parse returns whether a state is of this kind, whether it is of this very
  -- limit, and its moment: µs, and a rest in 1/div µs.
  local function parse(L, state)
    local sign, shape, at = string.match(state, '^(%-?)(%d%d%d)(%d+)$')
    if at then
      return (sign == '-') == L.queue, sign .. shape == L.shape, whole(at), 0, 1
    end
    local letter, form, div, at, rest = string.match(state, '^([gq])(%d+:(%d+):%d+):(%d+):(%d+)$')
    if not letter then return false end
    return (letter == 'q') == L.queue, form == formOf(L), whole(at), whole(rest), whole(div)
  end

  function kind.read(L, state, t)
    L.t, L.used = t, 0
    L.full = mul(L.capacity, L.step)
    L.debt = mul(L.full, 2)
    if not state then return end
    local mine, same, at, rest, div = parse(L, state)
    if not mine or less(at, t) then return end
    local used = add(mul(sub(at, t), div), rest)
    if not same then
      -- the time until full is kept, up to one drain
      used = least(ceil(mul(used, L.div), div), L.full)
    elseif less(L.debt, used) then
      used, L.mended = L.debt, true
    end
    L.used = used
  end

  function kind.write(L)
    local ahead, rest = quo(L.used, L.div)
    local at = text(add(L.t, ahead))
    at = string.rep('0', 16 - #at) .. at
    if L.shape and #at == 16 then return L.shape .. at end
    return (L.queue and 'q' or 'g') .. formOf(L) .. ':' .. at .. ':' .. text(rest)
  end

  function kind.admits(L, c)
    return not less(L.full, add(L.used, mul(c, L.step)))
  end

  function kind.charge(L, c)
    L.used = least(add(L.used, mul(c, L.step)), L.debt)
  end

  function kind.mark(L)
    local ahead, rest = quo(L.used, L.div)
    return text(add(L.t, ahead)) .. ':' .. text(rest)
  end

  function kind.remaining(L) return (quo(sub(L.full, L.used), L.step)) end
  function kind.reset(L) return ceil(L.used, L.div) end
  function kind.delay(L)
    if L.queue then return kind.reset(L) end
    return 0
  end

  function kind.wait(L, c)
    return ceil(sub(add(L.used, mul(c, L.step)), L.full), L.div)
  end

  -- giveBack returns n units, at most the part of the charge's stretch, which
  -- ended at the mark, that still lies ahead.
  function kind.giveBack(L, mark, n)
    local at, rest = string.match(mark, '^(%d+):(%d+)$')
    at = whole(at)
    local ahead = 0
    if not less(at, L.t) then ahead = add(mul(sub(at, L.t), L.div), whole(rest)) end
    L.used = sub(L.used, least(mul(n, L.step), ahead))
  end

  function kind.refund(L, n) L.used = sub(L.used, mul(n, L.step)) end

  return kind
end
