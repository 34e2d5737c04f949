-- A push of the async mode: charges what a node has let through by itself, room
-- or not, once for each of its sequence numbers, and answers with the state
-- after it, by which the node decides. It comes of decisions, so it puts the node's
-- numbers in force, after it has charged under those that the state has. Sequence 0
-- is of one that comes of looks alone.
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
