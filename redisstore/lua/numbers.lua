-- Numbers are doubles, exact below 2^53. Limits are bounded so that times, counts and
-- backlogs stay below that (see ../limit.go); products that may not are computed by share.
-- A count or a cost that would exceed it stops at MOST.

local MOST = 9007199254740992 -- 2^53
local LONGEST = MOST / 4 -- of backlogs and drains
local floor, least, most = math.floor, math.min, math.max

-- halves returns a number as the sum of two of at most 26 bits each.
local function halves(a)
  local c = a * 134217729 -- 2^27 + 1
  local high = c - (c - a)
  return high, a - high
end

-- product returns a·b, and by how much that was rounded down.
local function product(a, b)
  local p, ah, al = a * b, halves(a)
  local bh, bl = halves(b)
  return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl
end

-- share returns ⌊a·b/c⌋ and the remainder, exactly though a·b may be beyond 2^53;
-- MOST where it is as much.
local function share(a, b, c)
  local q = floor(a * b / c)
  if q >= MOST then return MOST, 0 end
  if a * b < MOST then return q, a * b - q * c end
  local p, under = product(a, b)
  local taken, over = product(q, c)
  local rest = (p - taken) + (under - over)
  while rest < 0 do q, rest = q - 1, rest + c end
  while rest >= c do q, rest = q + 1, rest - c end
  return q, rest
end

-- shareUp returns ⌈a·b/c⌉.
local function shareUp(a, b, c)
  local q, rest = share(a, b, c)
  return rest == 0 and q or q + 1
end

-- text returns a whole number in digits. (tostring and .. keep 14.)
local function text(a) return string.format('%.0f', a) end

-- whole reads a count or a cost.
local function whole(s) return least(tonumber(s), MOST) end

-- alive returns the milliseconds after which a key has nothing left of so many µs.
local function alive(us) return text(floor(us / 1000) + 2) end

-- bounds reads the capacity of a bucket and its greatest debt, which a d parts: as much
-- again unless given. It returns the capacity, and the most units in use.
local function bounds(s)
  local capacity, debt = string.match(s, '^(%d+)d?(%d*)$')
  return tonumber(capacity), capacity + (tonumber(debt) or capacity)
end

local arguments = 0 -- of ARGV have been read

local function argument()
  arguments = arguments + 1
  return ARGV[arguments]
end

local virtual -- the time is an argument, and nothing expires

-- keep writes a key of which something is left for so many µs.
local function keep(key, value, us)
  if virtual then
    redis.call('SET', key, value)
  else
    redis.call('SET', key, value, 'PX', alive(us))
  end
end

-- timeOfCall returns the time in µs: the argument that is left, or the server's.
local function timeOfCall()
  local t = argument()
  if t and t ~= '' then
    virtual = true
    return tonumber(t)
  end
  local time = redis.call('TIME')
  return time[1] * 1000000.0 + time[2]
end
