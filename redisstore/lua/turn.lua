-- Turns. A request that waits is charged as of its turn, in a bucket tat' = max(tat, turn) +
-- cost·T, so that a late timer delays its own start and none after it. After the cost, the
-- call says how long ago the turn may have been, in µs. Its denials change nothing.

-- asked reads a cost, and of a request that waits how long ago its turn may have been.
local function asked()
  local cost, age = string.match(argument(), '^(%d+)@?(%d*)$')
  return whole(cost), tonumber(age)
end

-- turnOf returns how long ago the turn of a cost that passes was: since then, all buckets
-- let it pass. If a layer is no bucket or has no state, that is not known, and the turn is now.
local function turnOf(layers, cost, age)
  age = least(age, longestAge)
  for i = 1, #layers do
    local L = layers[i]
    if not L.late or L.queue or L.own or L.ban or overflowed then return 0 end
    if #layers > 1 then
      age = least(age, floor((L.capacity * L.step - L.used + L.late - units(L, cost) * L.step) / L.div))
    end
  end
  return age
end

-- recover dates the charge of a bucket back to a turn.
local function recover(L, age)
  local used = L.used - least(L.late, age * L.div)
  L.used, L.behind = most(used, 0), most(-used, 0)
end

-- stay keeps the state of a bucket for a second longer than it is in use.
local function stay(L)
  if not virtual and L.late then
    local left, us = redis.call('PTTL', L.key), L.kind.reset(L) + longestAge
    if left >= 0 and left * 1000 < us then redis.call('PEXPIRE', L.key, alive(us)) end
  end
end
