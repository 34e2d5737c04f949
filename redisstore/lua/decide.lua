-- The call: read, decide every layer, write all or nothing.
--
-- Of one who waits, an @ and its age stand behind the cost of w and r: see turn.lua.
-- KEYS: a state for each layer; for r and s then the open reservations of each
-- layer, and the record of this one; for a that alone.
-- ARGV: op, cost; for r then time to live (µs), token, and what settling needs
-- to know, for s the token and what reading the answer needs; for each layer its
-- weight, and what readLayer reads; then, if the time is not the server's, now (µs).
-- op: t take, w take for one who waits, x count what was denied elsewhere, p peek, u take
-- up to, r reserve, s settle, f refund, d reset, b ban for at least so many µs in place of a
-- cost, k take so that it can be given back, y give that back: then the marks follow the
-- cost, a what settling a reservation needs to know. T, P and K are t, p and k of the fast
-- path, which could not decide them; their layers have no weights.
-- Answer: the cost that was decided on, then seven integers a layer, behind them for k
-- where each was charged, for y whether nothing of it stands (1); to T, P and K that
-- behind an s. "stale <t>" when a calendar's bounds do not hold the server's
-- time, or it is too late to decide; nil for a reservation that is not there, "gone" for one to raise. To a, and to s where it was
-- settled before: o, what settling needs to know, and which states were overflow
-- keys; or s, what reading the answer needs, and that.

local op = string.lower(argument())
if op == 'd' then
  local gone = 0
  for i = 1, #KEYS do gone = gone + redis.call('DEL', KEYS[i]) end
  return gone
end

if op == 'b' then
  local length, t, layers = tonumber(argument()), timeOfCall(), {}
  for i = 1, #KEYS do
    local L = { loaded = t }
    local wrong = loadBan(L, KEYS[i], t)
    if wrong then return wrong end
    if L.banned < length then L.banned, L.begun = length, length end
    layers[i] = L
  end
  saveAll(layers)
  return 0
end

if op == 'a' then
  local over, settled, open = recorded(KEYS[1], timeOfCall())
  return not over and (settled or open)
end

local cost, age = asked()
local quick, n = op ~= ARGV[1], #KEYS
local ttl, token, about
if op == 'r' then ttl, token, about = tonumber(argument()), argument(), argument() end
if op == 's' then token, about = argument(), argument() end
local marks = {}
if op == 'y' then for i = 1, n do marks[i] = argument() end end
if op == 'r' or op == 's' then n = (n - 1) / 2 end
local layers = readLayers(n, quick)
local t = timeOfCall()
local wrong = loadAll(layers, 0, t)
if wrong then return wrong end

-- standing answers with the states as they are.
local function standing()
  local all = { cost }
  for _, L in ipairs(layers) do answer(all, L, true, 0, 0) end
  return all
end

local out, allowed
if op == 's' then
  out = settle(layers, t, cost, token, about, standing)
elseif op == 'y' then
  local back = 1
  for i, L in ipairs(layers) do
    if not release(L, marks[i], units(L, cost)) then back = 0 end
    L.changed = true
  end
  out = standing()
  out[#out + 1] = back
elseif op == 'f' then
  for _, L in ipairs(layers) do
    L.kind.refund(L, units(L, cost))
    L.changed = cost ~= 0
  end
  out = standing()
else
  for i = 1, op == 'r' and n or 0 do
    if gone(layers[i], KEYS[n + i], t) then return 'gone' end
  end
  out, allowed = take(op, cost, layers, t, age)
  if allowed and op == 'r' then reserve(layers, t, cost, ttl, token, about) end
end
saveAll(layers)
if quick then table.insert(out, 1, 's') end
if overflowed then out[#out + 1] = overflowed end
return out
