-- The layers of a request: what limits they are, how their states are read and
-- written, and what they answer.

local makers = {
  g = bucket, q = bucket, i = interval, w = window, c = window, s = counter, l = log, b = parts,
}
local virtual -- the time is an argument, and nothing expires

-- readNumbers reads what follows a limit's letter: of a bucket or queue step,
-- div, capacity; of an interval period, count, capacity; else the period (a
-- calendar's unit and zone), count, flags, and then the cuts of parts or so
-- many bounds of a calendar. Flags: d count_denied, r relaxed, m small counts.
local function readNumbers(L, letter)
  if letter == 'g' or letter == 'q' then
    L.queue = letter == 'q'
    L.step, L.div, L.capacity = whole(argument()), whole(argument()), whole(argument())
    return
  end
  local span, count, last = argument(), argument(), argument()
  L.count = whole(count)
  if letter == 'i' then
    L.form = span .. ':' .. count .. ':' .. last
    L.period, L.unit = spanOf(span)
    L.capacity = whole(last)
    return
  end
  L.capacity = L.count
  if last ~= '' then
    L.countDenied = string.find(last, 'd') ~= nil
    L.relaxed = string.find(last, 'r') ~= nil
    L.small = string.find(last, 'm') ~= nil
  end
  if letter == 'c' then
    L.head, L.bounds = 'w' .. span .. ':', {}
    for i = 1, tonumber(argument()) do L.bounds[i] = whole(argument()) end
    return
  end
  L.head = letter .. span .. ':'
  L.period, L.unit = spanOf(span)
  if letter == 'b' then
    L.cuts = whole(argument())
  elseif letter == 'l' then -- goes by whole microseconds, as does all that is in it
    L.period, L.unit = ceil(L.period, L.unit), 1
  end
end

-- readLayer reads one layer. A bucket of small numbers begins with what its
-- states do: step, full, div.
local function readLayer(weight)
  local L = { weight = weight, unit = 1, from = arguments + 1 }
  local letter = argument()
  if makers[letter] then
    readNumbers(L, letter)
  else
    L.queue = string.find(letter, '^[-q]') ~= nil
    L.step = whole(argument())
    L.capacity = quo(whole(argument()), L.step)
    L.div = whole(argument())
    if L.div == 1 then L.shape = letter end
    letter = 'g'
  end
  local kind = makers[letter]
  if type(kind) == 'function' then
    kind = kind()
    makers[letter] = kind
  end
  L.kind, L.to = kind, arguments
  return L
end

-- load reads the state at key at the time t.
local function load(L, key, t)
  L.key = key
  local state = redis.call('GET', key)
  if state and not (string.find(state, '^[-giqslb]?%d') or string.find(state, '^w[%ddm]')) then
    return redis.error_reply('STINT a value that is no state of a limit')
  end
  if L.unit ~= 1 then t = mul(t, L.unit) end
  L.kind.read(L, state, t)
end

-- micros makes microseconds of ticks, rounded up.
local function micros(L, d)
  if L.unit == 1 then return d end
  return ceil(d, L.unit)
end

-- save writes a state that has changed, to be forgotten once it is as if never
-- seen; a denial changes none.
local function save(L)
  local reset = micros(L, L.kind.reset(L))
  if reset == 0 then
    redis.call('DEL', L.key)
  elseif virtual then
    redis.call('SET', L.key, L.kind.write(L))
  else
    redis.call('SET', L.key, L.kind.write(L), 'PX', text((quo(add(reset, 1999), 1000))))
  end
end

-- units returns what a cost of the request is in the layer's own units, at most
-- what an int64 holds, and whether it fits one.
local function units(L, cost)
  local n = mul(cost, L.weight)
  local most = atMost(n)
  return most, equal(most, n)
end

local function admits(L, cost)
  if cost == 0 then return true end
  local n, fits = units(L, cost)
  return fits and not less(L.capacity, n) and L.kind.admits(L, n)
end

-- wait returns how long a cost has to wait, or -1 for ever.
local function wait(L, cost)
  local n, fits = units(L, cost)
  if not fits or less(L.capacity, n) then return -1 end
  if admits(L, cost) then return 0 end
  return micros(L, L.kind.wait(L, n))
end

-- answer appends a layer's answer: whether it passes by itself, remaining,
-- reset after, retry after, delay.
local function answer(out, L, ok, retry, delay)
  local n = #out
  out[n + 1] = ok and 1 or 0
  out[n + 2] = integer(L.kind.remaining(L))
  out[n + 3] = integer(micros(L, L.kind.reset(L)))
  out[n + 4] = integer(retry)
  out[n + 5] = integer(delay)
end
