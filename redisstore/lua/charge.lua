-- Many keys are charged with what they owe, room or not, once for each record.
--
-- KEYS: the states, and the record. ARGV: C, how long the record stays (µs); for
-- each limit how many of the states are its own, a layer as in decide.lua, and the
-- units of each.
-- Answer: how many were charged; -1 where the record is there already.

if ARGV[1] == 'C' then
  argument()
  local life, record = tonumber(argument()), KEYS[#KEYS]
  if redis.call('GET', record) then return -1 end
  local layers, owed, from = {}, {}, nil
  while #layers < #KEYS - 1 do
    local n = tonumber(argument())
    from = arguments
    for _ = 1, n do
      arguments = from
      layers[#layers + 1] = readLayer(whole(argument()))
    end
    for _ = 1, n do owed[#owed + 1] = whole(argument()) end
  end
  local t = timeOfCall()
  local fine = {}
  for i, L in ipairs(layers) do
    local read, wrong = pcall(load, L, KEYS[i], t)
    if L.stale then return 'stale ' .. text(t) end
    fine[i] = read and not wrong
  end
  local charged = 0
  for i, L in ipairs(layers) do
    if fine[i] then
      charge(L, owed[i])
      save(L)
      charged = charged + 1
    end
  end
  keep(record, '', life)
  return charged
end
