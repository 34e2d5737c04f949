-- Decides a request, alone or in a batch: read its layers, decide each, write all or
-- nothing.

-- readLayers reads the arguments of n layers; those of the fast path have no
-- weights. Behind a weight may stand b and the length of a ban, in µs; 0 to begin none.
local function readLayers(n, short)
  local layers = {}
  for i = 1, n do
    local weight, length = 1, nil
    if not short then weight, length = string.match(argument(), '^(%d+)b?(%d*)$') end
    layers[i] = readLayer(whole(weight))
    layers[i].ban = tonumber(length)
  end
  return layers
end

-- loadAll reads the states of layers, whose keys follow KEYS[first], and returns the
-- error of one, if any.
local function loadAll(layers, first, t)
  for i = 1, #layers do
    local L, key = layers[i], KEYS[first + i]
    local wrong = load(L, key, t)
    if L.ban and not wrong then
      if named then key, L.shared = named[i], key ~= named[i] end
      wrong = loadBan(L, key, t)
    end
    if wrong then return wrong end
  end
  for i = 1, #layers do
    if layers[i].stale then return 'stale ' .. text(t) end
  end
end

-- mostOf returns the most of a cost that passes now; 1 where none does.
local function mostOf(layers, cost)
  for i = 1, #layers do cost = least(cost, floor(remaining(layers[i]) / layers[i].weight)) end
  return most(cost, 1)
end

-- take decides at t, charges what passes, and answers; and whether it passes. With
-- x it has been denied elsewhere: what counts that is charged, and what bans does.
local function take(op, cost, layers, t)
  if op == 'u' and cost ~= 0 then cost = mostOf(layers, cost) end
  local allowed, ok, writes = op ~= 'x', {}, op ~= 'p' and cost ~= 0
  for i = 1, #layers do
    if writes then enforce(layers[i]) end
    ok[i] = admits(layers[i], cost)
    if writes and layers[i].ban and not ok[i] then ban(layers[i], cost) end
    allowed = allowed and ok[i]
  end
  local out = { cost }
  for i = 1, #layers do
    local L, delay, retry = layers[i], 0, 0
    if allowed and L.queue and cost ~= 0 then delay = L.kind.delay(L) end
    if writes and (allowed or L.countDenied) then charge(L, units(L, cost), op ~= 'r') end
    if not allowed then retry = wait(L, cost) end
    if L.banned > 0 and not ok[i] then delay = -1 end
    answer(out, L, ok[i], retry, delay)
  end
  if op == 'k' and allowed then
    for i = 1, #layers do out[#out + 1] = markCharge(layers[i], t) end
  end
  return out, allowed
end

-- saveAll writes the states that have changed.
local function saveAll(layers)
  for i = 1, #layers do
    if layers[i].changed or layers[i].mended then save(layers[i]) end
    if layers[i].begun then saveBan(layers[i]) end
  end
end
