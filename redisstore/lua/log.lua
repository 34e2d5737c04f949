-- The sliding log: every charge of the last period; charges of one moment are one entry.
-- All that is older than the newest count units is one entry, at its newest moment.
-- fastpath_log.lua says how a log is written, and decides on a log alone; here it is read
-- and written whole.
--
-- While reservations are open, !<end>:<cutFrom>:<cutAt>! stands behind the head: until
-- when, and from where to where the oldest entry was gathered.

local function log()
  local kind, list = {}, newList()

  function kind.read(L, state, from, t)
    L.t, L.open = t, nil
    list.clear(L)
    if not state then return end
    if string.byte(state, from) == 33 then
      local ends, cutFrom, cutAt
      ends, cutFrom, cutAt, from = string.match(state, '^!(%d+):(%d+):(%d+)!()', from)
      if t < tonumber(ends) then L.open, L.cutFrom, L.cutAt = tonumber(ends), tonumber(cutFrom), tonumber(cutAt) end
    end
    if string.byte(state, from) == 42 then
      local first, last
      L.base, L.at, L.units, L.total, first, last = struct.unpack(logNumbers, state, from + 1)
      L.body, L.pos, L.last = state, first + 1, last
      if first == last then L.base = L.at end
    else
      list.parse(L, state, from)
    end
    if t >= L.at + L.period then return list.clear(L) end
    while t >= L.base + L.period do list.dropOldest(L) end
    local ahead = t + L.period
    if L.at > ahead then -- a clock fault
      list.clamp(L, ahead)
      L.mended = true
    end
  end

  function kind.write(L)
    local head = L.form
    if L.open then head = head .. '!' .. text(L.open) .. ':' .. text(L.cutFrom) .. ':' .. text(L.cutAt) .. '!' end
    return formatLog(head, L.base, L.at, L.units, L.total, list.entries(L))
  end

  function kind.admits(L, c) return L.total + c <= L.count end

  -- charge: what is older than the newest count units matters again only when some of
  -- these are given back.
  function kind.charge(L, c)
    if c == 0 then return end
    local at, from = L.t, L.t
    if L.total ~= 0 then
      at, from = most(at, L.at), L.base
      if L.open and from == L.cutAt then from = L.cutFrom end
    end
    list.push(L, at, least(c, MOST / 4))
    if L.total <= L.count then return end
    local newest = list.gather(L, L.total - L.count, MOST / 4)
    if L.open and from < newest then L.cutFrom, L.cutAt = from, newest end
  end

  function kind.mark(L) return text(L.total ~= 0 and L.at or L.t) end
  function kind.remaining(L) return most(L.count - L.total, 0) end
  function kind.reset(L) return L.total == 0 and 0 or L.at + L.period - L.t end
  function kind.wait(L, n) return list.decisive(L, L.total - n) + L.period - L.t end

  function kind.giveBack(L, mark, n)
    local at = tonumber(mark)
    if L.t >= at + L.period then return end
    if L.open and at >= L.cutFrom and at < L.cutAt then at = L.cutAt end
    list.takeOut(L, n, at)
  end

  function kind.refund(L, n) list.takeBack(L, n) end

  return kind
end
