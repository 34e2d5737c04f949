-- States as they were written before they said their form and version. They are
-- taken over once, when the key has no state of this layout, and keep their time:
--
--   517 1795229355387954               a bucket or queue (-517) of steps of whole µs:
--                                      a hash of its form, then when it is full
--   g60000000:7:3: 1795229355387954:6  another, with its form
--   i…, w…, s…, b…, l…                 as now, but for their count and flags
--
-- without the space. What such a state does not say of its form is taken from the
-- limit that meets it.
--
-- W reads: KEYS: the old state. ARGV: W. Answer: it and how long it has to live,
-- in ms; nothing where there is none.
-- V writes: KEYS: the state. ARGV: V, the old state, its time to live, the hash of
-- the limit's form, then a layer as in decide.lua without its weight.

if ARGV[1] == 'W' then
  local state = redis.call('GET', KEYS[1])
  return state and { state, redis.call('PTTL', KEYS[1]) }
end

-- numbersOf returns the count and flags of a state of a letter and period: those
-- of the limit, if it is such a one, else what admits no more than is in use.
local function numbersOf(L, letter, span, used)
  local count, flags = string.match(L.form, '^=' .. letter .. span:gsub('%p', '%%%0') .. ':(%d+):(%a*):')
  return (count or used) .. ':' .. (flags or '') .. ':'
end

-- bucketOf writes an old bucket of which only the time until it is full is known.
local function bucketOf(L, shape, old, t)
  local sign, hash, at = string.match(old, '^(%-?)(%d%d%d)(%d+)$')
  local ahead = sub(whole(at), t)
  if ahead == 0 then return end
  if not L.step then return '=' .. (sign == '' and 'G' or 'Q') .. '1:1:' .. text(ahead) .. '::' .. text(add(t, ahead)) .. ':0' end
  if sign .. hash ~= shape then ahead = least(ahead, ceil(L.full, L.div)) end
  return L.form .. ':' .. text(add(t, ahead)) .. ':0'
end

-- logOf writes an old log.
local function logOf(L, span, old, from)
  if string.byte(old, from) ~= 42 then
    local total = string.match(old, '^%d+:%d+:%d+:(%d+):', from)
    return '=l' .. span .. ':' .. numbersOf(L, 'l', span, total) .. string.sub(old, from)
  end
  local base, at, units, total, first, last = struct.unpack(logNumbers, old, from + 1)
  return formatLog('=l' .. span .. ':' .. numbersOf(L, 'l', span, text(total)), base, at, units, total, string.sub(old, first + 1, last))
end

-- migrated returns an old state as one of this layout, at the time t.
local function migrated(L, shape, old, ends, t)
  if string.find(old, '^%-?%d+$') then return bucketOf(L, shape, old, t) end
  local letter, span, from = string.match(old, '^(%a)([^:]*):()')
  if letter == 'g' or letter == 'q' then
    local step, div, capacity, at, rest = string.match(old, '^%a(%d+):(%d+):(%d+):(%d+):(%d+)$')
    if less(1125899906842624, mul(whole(step), whole(capacity))) or less(1073741824, whole(div)) then letter = string.upper(letter) end
    return '=' .. letter .. step .. ':' .. div .. ':' .. capacity .. '::' .. at .. ':' .. rest
  elseif letter == 'i' then
    return '=' .. old
  elseif letter == 'w' and not string.find(span, '^%d') then
    local used = string.match(old, ':(%d+)$')
    return '=c' .. span .. ':' .. numbersOf(L, 'c', span, used) .. string.sub(old, from) .. ':' .. text(ends)
  elseif letter == 'w' or letter == 's' then
    local used = string.match(old, '^%d+:(%d+)', from)
    return '=' .. letter .. span .. ':' .. numbersOf(L, letter, span, used) .. string.sub(old, from)
  elseif letter == 'b' then
    local used = string.match(old, '^%d+:%d+:%d+:%d+:(%d+):', from)
    return '=b' .. span .. ':' .. numbersOf(L, 'b', span, used) .. string.sub(old, from)
  elseif letter == 'l' then
    return logOf(L, span, old, from)
  end
end

if ARGV[1] == 'V' then
  argument()
  local old, ms, shape = argument(), argument(), argument()
  local L = readLayer(1)
  local t = timeOfCall()
  if redis.call('GETRANGE', KEYS[1], '0', '0') ~= '' then return end
  local state = migrated(L, shape, old, add(t, mul(math.max(tonumber(ms), 1), 1000)), t)
  if state and (virtual or tonumber(ms) <= 0) then
    redis.call('SET', KEYS[1], state)
  elseif state then
    redis.call('SET', KEYS[1], state, 'PX', ms)
  end
  return
end
