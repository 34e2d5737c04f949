-- Decides a request, alone or in a batch: read its layers, decide each, write all or
-- nothing.

-- readLayers reads the arguments of n layers. Calls of the fast path have no weights. After
-- a weight may follow b and the length of a ban in µs, 0 to begin none; x and for how long
-- the reservation excuses denials; y and the latest time (µs) to decide at, since a call that
-- was held up on its way would note a denial of whose cause nobody knows any more; and o and the
-- record of the one that it raises.
local function readLayers(n, short)
  local layers = {}
  for i = 1, n do
    local weight, length, excuse, by, raised = 1, nil, nil, nil, ''
    if not short then weight, length, excuse, by, raised = string.match(argument(), '^(%d+)b?(%d*)x?(%d*)y?(%d*)o?(.*)$') end
    local L = readLayer(whole(weight))
    L.ban, L.excuse, L.by, L.raised = tonumber(length), tonumber(excuse), tonumber(by), raised
    layers[i] = L
  end
  return layers
end

-- loadAll reads the states of layers, whose keys begin at KEYS[first], and returns an error
-- if there is one.
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
    if layers[i].stale or t > (layers[i].by or t) then return 'stale ' .. text(t) end
  end
end

-- mostOf returns the most of a cost that passes now, 1 if nothing passes.
local function mostOf(layers, cost)
  for i = 1, #layers do cost = least(cost, floor(remaining(layers[i]) / layers[i].weight)) end
  return most(cost, 1)
end

-- take decides at t, charges a request that passes, and returns the answer and whether it
-- passes. With x it was denied elsewhere: layers with count_denied charge it, and layers with
-- a ban begin it. A denial that open reservations excuse is not counted, and begins no ban.
-- With an age the request waits, and does not pass if it would start later.
local function take(op, cost, layers, t, age)
  if op == 'u' and cost ~= 0 then cost = mostOf(layers, cost) end
  local allowed, ok, writes = op ~= 'x', {}, op ~= 'p' and cost ~= 0
  local excuses, counts = {}, op == 'x'
  for i = 1, #layers do
    if writes then enforce(layers[i]) end
    ok[i] = admits(layers[i], cost)
    if age and layers[i].queue and op ~= 'r' then ok[i] = ok[i] and layers[i].kind.delay(layers[i]) == 0 end
    if not ok[i] and not age then -- who waits goes by what is settled
      excuses[i] = excused(layers[i], cost, t)
      counts = counts or not excuses[i]
      if writes and layers[i].ban and not excuses[i] then ban(layers[i], cost) end
    end
    allowed = allowed and ok[i]
  end
  local out, ago = { cost }, age and allowed and turnOf(layers, cost, age) or 0
  for i = 1, #layers do
    local L, delay, retry = layers[i], 0, 0
    if allowed and L.queue and cost ~= 0 then delay = L.kind.delay(L) end
    if writes and (allowed or L.countDenied and counts and not age) then charge(L, units(L, cost), op ~= 'r') end
    if ago > 0 then recover(L, ago) end
    L.stays = age and L.kind.level
    if not allowed then retry = wait(L, cost) end
    if excuses[i] then retry, delay = least(retry, excusedFor), -2 end
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
    if layers[i].changed or layers[i].mended then
      save(layers[i])
    elseif layers[i].stays then
      stay(layers[i])
    end
    if layers[i].begun then saveBan(layers[i]) end
  end
end
