-- A push of the async mode: it charges the units that a node has let through by itself,
-- room or not, once for each sequence number, and answers with the state after that, by
-- which the node decides. First it charges by the limit that the state drains by; then,
-- since decisions were made, it converts the state to the node's limit. Sequence 0 is of
-- a push that only asks.
--
-- KEYS: the state, and the node's last sequence number. ARGV: n, sequence,
-- units, then a layer as in decide.lua.
-- Answer: as that of a decision for one unit.

-- push is a call, alone or in a batch, whose keys follow KEYS[first]; t is the time of
-- a batch. Its op has been read.
local function push(first, t)
  local sequence, cost = argument(), whole(argument())
  local L = readLayer(whole(argument()))
  t = t or timeOfCall()
  local wrong = load(L, KEYS[first + 1], t)
  if wrong then return wrong end
  if L.stale then return 'stale ' .. text(t) end
  local last = redis.call('GET', KEYS[first + 2])
  if cost ~= 0 and not (last and tonumber(last) >= tonumber(sequence)) then
    charge(L, cost, false, true)
    keep(KEYS[first + 2], sequence, 600000000)
  end
  if sequence ~= '0' then enforce(L) end
  if L.changed then save(L) end
  local out = { cost }
  answer(out, L, true, wait(L, 1), 0)
  return out
end

if ARGV[1] == 'n' then
  argument()
  return push(0)
end
