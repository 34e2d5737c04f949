-- The call: read, decide every layer, write all or nothing.
--
-- KEYS: a state for each layer; for r and s then a generation for each layer,
-- and the reservation.
-- ARGV: op, cost; for r then time to live (µs), token, and what settling needs
-- to know; for each layer its weight, letter and numbers; then, if the time is
-- not the server's, now (µs).
-- op: t take, p peek, u take up to, r reserve, s settle, f refund, d reset, k take so
-- that it can be given back, y give that back: then the marks follow the cost,
-- a what settling a reservation needs to know.
-- Answer: the cost that was decided on, then five integers a layer, behind them for k
-- where each was charged, and where a
-- reservation was settled the capacity of each layer then; "stale <t>"
-- when a calendar's bounds do not hold the server's time; nil for a reservation
-- that is not there.

local op = string.lower(argument())
if op == 'd' then return redis.call('DEL', unpack(KEYS)) end
if op == 'a' then return { redis.call('HGET', KEYS[1], 'about'), redis.call('HGET', KEYS[1], 'overflowed') } end

local cost, quick, n = whole(argument()), op ~= ARGV[1], #KEYS
local ttl, token, about
if op == 'r' then ttl, token, about = whole(argument()), argument(), argument() end
local marks = {}
if op == 'y' then for i = 1, n do marks[i] = argument() end end
if op == 'r' or op == 's' then n = (n - 1) / 2 end
local layers = readLayers(n, quick)
local t = argument()
if t then
  t, virtual = whole(t), true
else
  local time = redis.call('TIME')
  t = time[1] * 1000000 + time[2]
end
local wrong = loadAll(layers, 0, t)
if wrong then return wrong end

-- standing answers with the states as they are.
local function standing()
  local all = { integer(cost) }
  for _, L in ipairs(layers) do answer(all, L, true, 0, 0) end
  return all
end

local out, allowed
if op == 's' then
  out = reservations(layers, n, t).settle(cost, standing)
elseif op == 'y' then
  for i, L in ipairs(layers) do
    L.kind.giveBack(L, marks[i], (units(L, cost)))
    L.changed = true
  end
  out = standing()
elseif op == 'f' then
  for _, L in ipairs(layers) do
    L.kind.refund(L, (units(L, cost)))
    L.changed = cost ~= 0
  end
  out = standing()
else
  out, allowed = take(op, cost, layers)
  if allowed and op == 'r' then reservations(layers, n, t).reserve(cost, ttl, token, about) end
end
saveAll(layers)
if not quick then
  if overflowed then out[#out + 1] = overflowed end
  return out
end

-- as the short way answers
local backlogs = {}
for i = 1, n do
  backlogs[i] = layers[i].used
  if out[i * 5 - 3] == 0 then backlogs[i] = -1 - layers[i].used end
end
if op == 'k' and allowed then backlogs[n + 1] = integer(t) end
backlogs[#backlogs + 1] = overflowed
if #backlogs == 1 then return backlogs[1] end
return backlogs
