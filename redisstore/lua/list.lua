-- What the log and the parts keep: entries of (at, units), oldest first. The
-- newest stands in the head of the state, the others are packed behind it, each
-- with how far the next is after it, so that the oldest are dropped and the
-- newest added without looking at the rest:
--
--   …:base:at:units:total:<gap, units><gap, units>…
--
-- base is where the oldest packed entry is, total the sum of all units. A gap
-- is seven bits a byte, the least first, six in the first, whose bit 6 says
-- that the units follow likewise; without it they are 1.

local function newList()
  local list = {}

  function list.clear(L)
    L.base, L.at, L.units, L.total, L.body, L.pos = 0, 0, 0, 0, '', 1
  end

  -- parse reads what follows the head of a state.
  function list.parse(L, state, from)
    local base, at, units, total, pos = string.match(state, '^(%d+):(%d+):(%d+):(%d+):()', from)
    L.base, L.at, L.units, L.total = whole(base), whole(at), whole(units), whole(total)
    L.body, L.pos = state, pos
  end

  function list.format(L)
    return text(L.base) .. ':' .. text(L.at) .. ':' .. text(L.units) .. ':' .. text(L.total) .. ':' ..
      string.sub(L.body, L.pos)
  end

  local byte, char = string.byte, string.char

  -- packed returns the gap and the units of the entry at pos, and where the next
  -- one stands.
  function list.packed(body, pos)
    local b = byte(body, pos)
    local many, more = b % 128 >= 64, b >= 128
    local gap, scale, units = b % 64, 64, 1
    pos = pos + 1
    while more do
      b = byte(body, pos)
      gap, scale, more, pos = gap + b % 128 * scale, scale * 128, b >= 128, pos + 1
    end
    if many then
      units, scale = 0, 1
      repeat
        b = byte(body, pos)
        units, scale, pos = add(units, mul(b % 128, scale)), mul(scale, 128), pos + 1
      until b < 128
    end
    return gap, units, pos
  end

  function list.pack(gap, units)
    local out, many = {}, units ~= 1
    local low = gap % 64 + (many and 64 or 0)
    gap = floor(gap / 64)
    while gap > 0 do
      out[#out + 1], low = char(low + 128), gap % 128
      gap = floor(gap / 128)
    end
    out[#out + 1] = char(low)
    while many do
      local rest
      units, rest = quo(units, 128)
      many = units ~= 0
      out[#out + 1] = char(rest + (many and 128 or 0))
    end
    return table.concat(out)
  end

  -- oldest returns when the oldest entry was and what it holds.
  function list.oldest(L)
    if L.pos > #L.body then return L.at, L.units end
    local _, units = list.packed(L.body, L.pos)
    return L.base, units
  end

  function list.dropOldest(L)
    if L.pos > #L.body then return list.clear(L) end
    local gap, units, pos = list.packed(L.body, L.pos)
    L.base, L.total, L.pos = add(L.base, gap), sub(L.total, units), pos
  end

  -- push adds units to the newest entry, or as one after it, which then holds at
  -- most L.most, or what an int64 holds.
  function list.push(L, at, units)
    if L.total == 0 then
      list.clear(L)
    elseif not equal(at, L.at) then
      if L.pos > #L.body then L.base = L.at end
      L.body = string.sub(L.body, L.pos) .. list.pack(sub(at, L.at), L.units)
      L.pos, L.units = 1, 0
    end
    local before = L.units
    L.at, L.units = at, atMost(add(before, units))
    if L.most then L.units = least(L.units, L.most) end
    L.total = add(L.total, sub(L.units, before))
  end

  function list.all(L)
    local all, at, pos = {}, L.base, L.pos
    while pos <= #L.body do
      local gap, units, following = list.packed(L.body, pos)
      all[#all + 1] = { at = at, units = units }
      at, pos = add(at, gap), following
    end
    if L.total ~= 0 then all[#all + 1] = { at = L.at, units = L.units } end
    return all
  end

  function list.rebuild(L, all)
    list.clear(L)
    for _, e in ipairs(all) do
      if e.units ~= 0 then list.push(L, e.at, e.units) end
    end
  end

  -- takeOut takes up to n units out of the entries, newest first, or out of
  -- those that were at one moment.
  function list.takeOut(L, n, at)
    local all = list.all(L)
    for i = #all, 1, -1 do
      local e = all[i]
      if not at or equal(e.at, at) then
        local back = least(e.units, n)
        e.units, n = sub(e.units, back), sub(n, back)
      end
    end
    list.rebuild(L, all)
  end

  -- decisive returns when the entry was with which, counted from the oldest,
  -- enough is forgotten.
  function list.decisive(L, enough)
    local at, pos, counted = L.base, L.pos, 0
    while pos <= #L.body do
      local gap, units, following = list.packed(L.body, pos)
      counted = add(counted, units)
      if not less(counted, enough) then return at end
      at, pos = add(at, gap), following
    end
    return L.at
  end

  return list
end
