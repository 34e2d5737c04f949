-- The layers of a request: what limits they are, how their states are read and
-- written, and what they answer. A key has one state under a limit:
--
--   =<letter><numbers>:<what it keeps>
--
-- The numbers are the parameters that a bucket drains by; algorithms that keep units with
-- their times have the period alone. So any process can read a state, whatever its own
-- limit is. The first byte is the version of this format; any other is an error.
--
-- If a bucket's state drains by other parameters than those of the limit that asks, a peek
-- lets it drain by them, and compares what is in use with the capacity of that limit. A
-- decision converts the state to its own limit (enforce), unless more is in use than that
-- has room for: then it denies, and writes nothing. A charge or a refund without a
-- decision uses the parameters of the state.

local longestAge = 1000000 -- µs, of who waits, and how long its call keeps a state that is in use no more

local makers = {
  g = bucket, q = bucket, i = interval, w = window, c = window, s = counter, l = log, b = parts,
}

-- ofLetter returns the algorithm of a letter.
local function ofLetter(letter)
  local kind = makers[letter]
  if type(kind) == 'function' then
    kind = kind()
    makers[letter] = kind
  end
  return kind
end

-- readLayer reads one layer from the arguments: what its states begin with, and the
-- numbers: of a bucket or queue step, full, div; of an interval period, count,
-- capacity; of others period, count and flags, then the cuts of parts, or how many
-- bounds of windows of a calendar there are and these. Flags: d count_denied, r
-- relaxed, f from first, m small counts, b bans.
local function readLayer(weight)
  local form = argument()
  local letter = string.sub(form, 2, 2)
  local a, b, c = argument(), argument(), argument()
  local L = { weight = weight, form = form, letter = letter, kind = ofLetter(letter), banned = 0 }
  if L.kind.level then
    L.kind.prepare(L, string.match(form, '^=%a(%d+):(%d+):(%w+):$'))
    return L
  end
  L.period, L.count, L.capacity = tonumber(a), tonumber(b), tonumber(b)
  L.countDenied, L.relaxed, L.first = string.find(c, 'd') ~= nil, string.find(c, 'r') ~= nil, string.find(c, 'f') ~= nil
  if letter == 'b' then
    L.cuts = tonumber(argument())
    if string.find(c, 'm') then L.most = 4294967295 end
  elseif letter == 'c' then
    L.bounds = {}
    for i = 1, tonumber(argument()) do L.bounds[i] = tonumber(argument()) end
  end
  return L
end

-- loadOther reads the state of a bucket that drains by other parameters, and reports
-- whether it is invalid. If nothing is in use, it is as if never written.
local function loadOther(L, state, t)
  local other, a, b, c, from = string.match(state, '^(=' .. L.letter .. '(%d+):(%d+):(%w+):)()')
  if not L.kind.level or not other then return true end
  local own, capacity = { form = L.form, string.match(L.form, '(%d+):(%d+):(%w+)') }, L.capacity
  L.kind.prepare(L, a, b, c)
  L.kind.read(L, state, from, t)
  if L.kind.reset(L) == 0 then
    L.kind.prepare(L, own[1], own[2], own[3])
    L.kind.read(L, nil, 1, t)
    L.mended = nil
    return
  end
  L.form, L.own = other, own
  L.kind.allow(L, capacity)
end

-- load reads the state at key at the time t.
local function load(L, key, t)
  L.key, L.loaded, L.own, L.changed, L.mended = key, t, nil, nil, nil
  local state = redis.call('GET', key)
  if not state then return L.kind.read(L, nil, 1, t) end
  local fine, wrong
  if string.sub(state, 1, #L.form) == L.form then
    fine = pcall(L.kind.read, L, state, #L.form + 1, t)
  else
    fine, wrong = pcall(loadOther, L, state, t)
  end
  if not fine or wrong then
    return redis.error_reply('STINT a value that is no state of a limit, or one of another version')
  end
end

-- enforce converts the state of a layer to its limit, for a decision. Reservations made
-- before give nothing back.
local function enforce(L)
  if not L.own or not L.kind.adopt(L, L.own) then return end
  L.form, L.own, L.late, L.low, L.token, L.changed = L.own.form, nil, nil, nil, nil, true
end

-- save writes a state that has changed, to be forgotten once it is as if never
-- seen, but of a log not while reservations are open.
local function save(L)
  local reset = L.kind.reset(L)
  if L.open then reset = most(reset, L.open - L.loaded) end
  if L.stays then reset = reset + longestAge end
  if reset == 0 then
    redis.call('DEL', L.key)
  else
    keep(L.key, L.kind.write(L), reset)
  end
end

-- units returns what a cost of the request is in the layer's own units.
local function units(L, cost) return least(cost * L.weight, MOST) end

-- charge charges a layer. promised says that the request was told its delay; reported that
-- it passed before, in a process: then none of it is cut off.
local function charge(L, n, promised, reported)
  L.changed = true
  L.kind.charge(L, n, promised, reported)
end

local function admits(L, cost)
  if cost == 0 then return true end
  return cost * L.weight <= L.capacity and L.banned == 0 and L.kind.admits(L, cost * L.weight)
end

-- remaining returns how many units pass now.
local function remaining(L) return L.banned == 0 and L.kind.remaining(L) or 0 end

-- wait returns how long a cost has to wait, or -1 for ever.
local function wait(L, cost)
  local n = cost * L.weight
  if n > L.capacity then return -1 end
  if admits(L, cost) then return 0 end
  if L.banned > 0 and L.kind.admits(L, n) then return L.banned end
  return most(L.banned, L.kind.wait(L, L.capacity - n))
end

-- answer appends a layer's answer: whether it passes by itself, remaining,
-- reset after, retry after, delay, or −1 for this where a ban denies, −2 where open
-- reservations excuse the denial; and step and div
-- of the bucket if they are not those of the limit that asks, else 0.
local function answer(out, L, ok, retry, delay)
  local n = #out
  out[n + 1] = ok and 1 or 0
  out[n + 2] = remaining(L)
  out[n + 3] = most(L.kind.reset(L), L.banned)
  out[n + 4] = retry
  out[n + 5] = delay
  out[n + 6] = L.own and L.step or 0
  out[n + 7] = L.own and L.div or 0
end
