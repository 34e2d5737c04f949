-- The layers of a request: what limits they are, how their states are read and
-- written, and what they answer. A state is
--
--   =<form>:<what it keeps>            of one form of a limit
--   &<n>:<n bytes><n>:<n bytes>…       of several, each as above, up to four
--   =h:<moment>::<units>:<moment>…     behind them: until when forms stay that are
--                                      idle, and what forms had that went
--   =o:<segment>:<segment>…            last: the other limits of the name that
--                                      count the key, too (see linked.lua)
--
-- The first byte says in which way states are written; one that is written in
-- another way is an error. A form is an algorithm's letter and its numbers.
--
-- A limit that has changed keeps its former forms in the state until none of them
-- has anything left to count. The form in force decides, all are charged; the first
-- of them is the one that charged last. Once it alone has done so for as long as
-- any of them remembers, others that are idle go with its next charge. A window of
-- a calendar that is not in force goes as it ends: the next is not known here.
--
-- When a fifth is met, the one that would be idle soonest goes, but what it has is
-- held until then: a form that is met starts with as many units at least.

local makers = {
  g = bucket, q = bucket, G = bucket, Q = bucket, i = interval,
  w = window, c = window, s = counter, l = log, b = parts,
}
local mostForms = 4

-- ofLetter returns the algorithm of a letter.
local function ofLetter(letter)
  local kind = makers[letter]
  if type(kind) == 'function' then
    kind = kind()
    makers[letter] = kind
  end
  return kind
end

-- prepare reads the numbers of a form: of a bucket or queue step, div, capacity;
-- of an interval period, count, capacity; else the period (a calendar's unit and
-- zone), count, flags, and then the cuts of parts. Flags: d count_denied, r
-- relaxed, m small counts.
local function prepare(L, letter, a, b, c, d)
  L.letter, L.kind, L.unit, L.span = letter, ofLetter(letter), 1, a
  if string.find(letter, '[gqGQ]') then
    L.queue = letter == 'q' or letter == 'Q'
    L.step, L.div, L.capacity = whole(a), whole(b), whole(c)
    L.kind.prepare(L)
    return
  end
  L.count = whole(b)
  if letter ~= 'c' then L.period, L.unit = spanOf(a) end
  if letter == 'i' then
    L.capacity = whole(c)
    return
  end
  L.capacity = L.count
  if c ~= '' then
    L.countDenied = string.find(c, 'd') ~= nil
    L.relaxed = string.find(c, 'r') ~= nil
    L.small = string.find(c, 'm') ~= nil
  end
  if letter == 'b' then
    L.cuts = whole(d)
  elseif letter == 'l' then -- goes by whole microseconds, as does all that is in it
    L.period, L.unit = ceil(L.period, L.unit), 1
  end
end

-- readLayer reads one layer from the arguments: a letter and the form's numbers,
-- a calendar's with the bounds of windows behind them. Of a bucket of small
-- numbers it is what its states begin with, step, full, div. In front of these
-- stand, behind a ~ and their number, the other limits whose place it may have
-- taken.
local function readLayer(weight)
  local L = { weight = weight }
  local letter = argument()
  if letter == '~' then
    L.before = {}
    for i = 1, tonumber(argument()) do L.before[i] = argument() end
    letter = argument()
  end
  if #letter > 1 then
    L.form = letter
    local step, div, capacity = string.match(letter, '^=%a(%d+):(%d+):(%d+):$')
    prepare(L, string.sub(letter, 2, 2), step, div, capacity)
    arguments = arguments + 3
    return L
  end
  local a, b, c, d = argument(), argument(), argument(), nil
  L.form = '=' .. letter .. a .. ':' .. b .. ':' .. c .. ':'
  if letter == 'b' then
    d = argument()
    L.form = L.form .. d .. ':'
  end
  prepare(L, letter, a, b, c, d)
  if letter == 'c' then
    L.bounds = {}
    for i = 1, tonumber(argument()) do L.bounds[i] = whole(argument()) end
  end
  return L
end

-- timeOf returns a time in the ticks of a layer.
local function timeOf(L, t)
  if L.unit ~= 1 then return mul(t, L.unit) end
  return t
end

-- former reads the state of a form that is not in force.
local function former(state, t)
  local letter = string.sub(state, 2, 2)
  local form = string.match(state, letter == 'b' and '^=%a[^:]*:[^:]*:[^:]*:[^:]*:' or '^=%a[^:]*:[^:]*:[^:]*:')
  if not form or not makers[letter] then return end
  local L = { form = form }
  prepare(L, letter, string.match(form, '^=%a([^:]*):([^:]*):([^:]*):([^:]*)'))
  L.kind.read(L, state, #form + 1, timeOf(L, t))
  return L
end

-- split returns the parts of a state.
local function split(state)
  if string.byte(state) ~= 38 then return { state } end
  local all, from = {}, 2
  while from <= #state do
    local n, first = string.match(state, '^(%d+):()', from)
    if not n then return {} end
    all[#all + 1] = string.sub(state, first, first + n - 1)
    from = first + n
  end
  return all
end

-- micros makes microseconds of ticks, rounded up.
local function micros(L, d)
  if L.unit == 1 then return d end
  return ceil(d, L.unit)
end

-- What is held is steps: units that count until a moment, of which the later are
-- fewer. Of too many the first two become one.
local mostSteps = 4

-- readHeld reads those that still count, and until when idle forms stay.
local function readHeld(part, t)
  local steps = {}
  for units, ends in string.gmatch(part, ':(%d+):(%d+)') do
    units, ends = whole(units), whole(ends)
    if less(t, ends) and units ~= 0 then steps[#steps + 1] = { units = units, ends = ends } end
  end
  local stay = string.match(part, '^=h:(%d+)')
  return steps, stay and whole(stay)
end

-- longest returns how long a form remembers a charge: two drains, two periods.
local function longest(L)
  if L.step then return ceil(L.debt, L.div) end
  if L.letter == 'c' then return string.find(L.span, '^month') and 5356800000000 or 172800000000 end
  local periods = 2
  if L.letter == 'i' then periods = mul(ceil(L.capacity, L.count), 2) end
  return micros(L, mul(L.period, periods))
end

-- stayUntil returns until when idle forms stay while another one alone is asked.
local function stayUntil(L)
  local all = longest(L)
  for _, P in ipairs(L.others) do all = most(all, longest(P)) end
  for _, S in ipairs(L.linked or {}) do
    for _, P in ipairs(S.forms) do all = most(all, longest(P)) end
  end
  return add(L.loaded, all)
end

-- addHeld returns steps with one more.
local function addHeld(steps, units, ends)
  local all, added = {}, false
  for i = 1, #steps do
    local o = steps[i]
    local fewer, sooner = not less(units, o.units), not less(ends, o.ends)
    if not (less(o.units, units) or less(o.ends, ends)) then return steps end
    if not sooner and not added then
      all[#all + 1], added = { units = units, ends = ends }, true
    end
    if not (fewer and sooner) then all[#all + 1] = o end
  end
  if not added then all[#all + 1] = { units = units, ends = ends } end
  if #all > mostSteps then
    all[2] = { units = all[1].units, ends = all[2].ends }
    table.remove(all, 1)
  end
  return all
end

-- asForm makes a form of what is held, to begin another with.
local function asForm(steps)
  return { kind = { inUse = function() return steps[1].units end } }
end

-- turn notes that another form than before charges: what was reserved until now
-- gives nothing back.
local function turn(L)
  local open = string.gsub(L.key, '}:', '}::open:', 1)
  local id = redis.pcall('HGET', open, 'id')
  if type(id) ~= 'string' then return end -- no hash: of nobody, or of another program
  local turns = redis.call('HGET', open, 'turn') or 0
  local left = virtual and -1 or redis.call('PTTL', open)
  redis.call('DEL', open)
  redis.call('HSET', open, 'id', id, 'turn', string.format('%d', turns + 1))
  if left > 0 then redis.call('PEXPIRE', open, string.format('%d', left)) end
end

-- begin has a form start with what is in use under another, up to its capacity.
local function begin(L, old, t)
  L.kind.read(L, nil, 1, timeOf(L, t))
  if not L.kind.adopt(L, old) then L.kind.charge(L, least(old.kind.inUse(old), L.capacity)) end
end

-- makeRoom finds, of too many forms, that which is idle soonest, of equals that
-- which charged last the longest ago. It goes, and what it holds is held for it.
local function makeRoom(L, t)
  local all = L.others
  if #all < mostForms then return end
  local soonest
  for i = #all, 1, -1 do
    local ends = micros(all[i], all[i].kind.reset(all[i]))
    if not soonest or less(ends, soonest) then L.goes, soonest = i, ends end
  end
  local P = all[L.goes]
  L.holds = L.held
  if soonest ~= 0 then L.holds = addHeld(L.held, least(P.kind.inUse(P), P.capacity), add(t, soonest)) end
end

-- meet begins a form that was not in force: with the greatest use under those
-- that still count, of equals that which charged last the longest ago. That is
-- written, also when the request is denied.
local function meet(L, all, t)
  if #all == 0 and #L.held == 0 then return end
  local greatest, from
  for i = #all, 0, -1 do
    local old = all[i] or #L.held > 0 and asForm(L.held)
    if old then
      begin(L, old, t)
      local use = L.step and L.used or L.kind.inUse(L)
      if not from or less(greatest, use) then greatest, from = use, old end
    end
  end
  begin(L, from, t)
  L.low, L.token, L.open = nil, nil, nil
  makeRoom(L, t)
  L.changed = true
end

-- met notes that a form counts from now on, and lets go of the one in whose place
-- it is.
local function met(L)
  if L.unmet and L.goes then
    table.remove(L.others, L.goes)
    L.held = L.holds
  end
  L.unmet, L.goes = nil, nil
end

local newLinked, linker -- in linked.lua, whose functions few calls need

-- linked returns these.
local function linked()
  linker = linker or newLinked()
  return linker
end

-- refundOthers takes units out of the forms that are not in force.
local function refundOthers(L, n)
  for _, P in ipairs(L.others or {}) do P.kind.refund(P, n) end
  for i = #L.held, 1, -1 do
    local o = L.held[i]
    o.units = sub(o.units, n)
    if o.units == 0 then L.held[i] = nil end
  end
end

-- forms reads the parts of a state: that of the layer, those of others that may
-- still count, and what is held. It returns the others, which part is the layer's
-- own, and whether any counts.
local function forms(L, parts, t)
  local others, mine, counts = {}, nil, false
  for i, part in ipairs(parts) do
    if string.sub(part, 1, #L.form) == L.form then
      L.kind.read(L, part, #L.form + 1, timeOf(L, t))
      mine, L.place, counts = i, #others + 1, counts or L.kind.reset(L) ~= 0
    elseif string.byte(part, 2) == 104 then
      L.held, L.stay = readHeld(part, t)
    elseif string.sub(part, 1, 3) == '=o:' then
      L.links = linked().read(part)
    else
      local P = former(part, t)
      if not P then return end
      local idle = P.kind.reset(P) == 0
      counts = counts or not idle
      if not idle or P.letter ~= 'c' then others[#others + 1] = P end
    end
  end
  return others, mine, counts or #L.held > 0
end

-- busy returns the forms that have something left to count.
local function busy(all)
  local some = {}
  for _, P in ipairs(all) do
    if P.kind.reset(P) ~= 0 then some[#some + 1] = P end
  end
  return some
end

-- load reads the state at key at the time t. What is to be refunded goes from the
-- former forms before another one is met. asked are the
-- layers of the request.
local function load(L, key, t, refunded, asked)
  L.key, L.others, L.place, L.unmet, L.held, L.goes, L.loaded, L.stay = key, nil, nil, nil, {}, nil, t, nil
  L.links, L.linked, L.gone = nil, nil, nil
  local state = redis.call('GET', key)
  if not state or string.sub(state, 1, #L.form) == L.form then
    L.kind.read(L, state, #L.form + 1, timeOf(L, t))
    if L.before and not L.stale and L.kind.reset(L) == 0 then linked().follow(L, L.before, t, refunded, asked) end
    return
  end
  local parts = split(state)
  local others, mine, counts = forms(L, parts, t)
  if not others or #parts == 0 then
    return redis.error_reply('STINT a value that is no state of a limit, or one of another version')
  end
  if L.links then counts = linked().join(L, t, asked) or counts end
  if not counts then -- as if never seen
    others, mine, L.place, L.low, L.token, L.open, L.linked = {}, nil, nil, nil, nil, nil, nil
  elseif mine == 1 and L.stay and not less(t, L.stay) then
    others = busy(others)
    if L.linked then linked().leave(L) end
  end
  L.others, L.turned, L.place, L.unmet = others, mine ~= 1, L.place or 1, not mine
  if not mine then
    if refunded then
      L.refunded = true
      refundOthers(L, refunded)
    end
    L.kind.read(L, nil, 1, timeOf(L, t))
    if L.stale then return end
    meet(L, others, t)
    if not counts then
      local before = L.before or L.links or {}
      L.links, L.stay = nil, nil
      if #before > 0 then linked().follow(L, before, t, refunded, asked) end
    end
  end
end

-- joined returns the parts of a state as one: forms, and what there is behind them.
local function joined(all, L)
  local links = L.links or {}
  if #L.held > 0 or #all > 1 or #links > 0 then
    local held = '=h:' .. (L.stay and text(L.stay) or '') .. ':'
    for _, o in ipairs(L.held) do held = held .. ':' .. text(o.units) .. ':' .. text(o.ends) end
    all[#all + 1] = held
  end
  if #links > 0 then all[#all + 1] = '=o:' .. table.concat(links, ':') end
  if #all == 1 then return all[1] end
  for i, part in ipairs(all) do all[i] = string.format('%d:', #part) .. part end
  return '&' .. table.concat(all)
end

-- put writes a state, which is as if never seen after so many µs.
local function put(key, state, reset)
  if virtual then
    redis.call('SET', key, state)
  else
    redis.call('SET', key, state, 'PX', text((quo(add(reset, 1999), 1000))))
  end
end

-- save writes a state that has changed, to be forgotten once it is as if never
-- seen, but of a log not while reservations are open; a denial changes none. The
-- form that has charged comes first, and ends reservations under the others; what
-- gives back meets none.
local function save(L)
  local reset, state = L.unmet and 0 or micros(L, L.kind.reset(L)), nil
  if L.open then reset = most(reset, sub(L.open, L.loaded)) end
  if L.others then
    local all, place = {}, L.place
    local takesOver = L.turned and place == 1 and not L.unmet
    if takesOver then turn(L) end
    if #L.others > 0 and (takesOver or not L.stay) then L.stay = stayUntil(L) end
    for i, P in ipairs(L.others) do
      if takesOver then P.open = nil end
      local ends = micros(P, P.kind.reset(P))
      if ends ~= 0 or P.letter ~= 'c' then
        all[#all + 1] = P.kind.write(P)
        reset = most(reset, ends)
      elseif i < L.place then -- what was given back has made it idle
        place = place - 1
      end
    end
    if not L.unmet then table.insert(all, place, L.kind.write(L)) end
    for _, o in ipairs(L.held) do reset = most(reset, sub(o.ends, L.loaded)) end
    if L.linked then reset = linked().save(L, reset) end
    if L.gone then linked().forget(L) end
    if #all == 0 and #L.held == 0 then return end -- of others alone was given back
    state = joined(all, L)
  end
  if reset == 0 then
    if L.others and #L.others > 0 then turn(L) end -- given back, all of it
    redis.call('DEL', L.key)
    return
  end
  put(L.key, state or L.kind.write(L), reset)
end

-- refund takes units out of every form of a layer.
local function refund(L, n)
  if L.refunded then return end -- before it met this one
  L.kind.refund(L, n)
  refundOthers(L, n)
end

-- units returns what a cost of the request is in the layer's own units, at most
-- what an int64 holds, and whether it fits one.
local function units(L, cost)
  local n = mul(cost, L.weight)
  local most = atMost(n)
  return most, equal(most, n)
end

-- charge charges every form of a layer, each by its own rule. promised says whether
-- the request has got its delay; denied, that only what counts denials is. What
-- is open under another form than that which charged last gives nothing back.
local function charge(L, n, promised, denied)
  met(L)
  L.changed = true
  for _, P in ipairs(L.others or {}) do P.open = nil end
  if not denied or L.countDenied then
    L.place = 1
    if L.turned then L.open = nil end
    L.kind.charge(L, n, promised)
  end
  if L.others then
    for _, P in ipairs(L.others) do
      if not denied or P.countDenied then P.kind.charge(P, n, promised) end
    end
  end
  if L.linked then linked().charge(L, n, promised, denied) end
end

-- countsDenied reports whether a denial is to be counted under a form.
local function countsDenied(L)
  if L.countDenied then return true end
  if L.others then
    for _, P in ipairs(L.others) do
      if P.countDenied then return true end
    end
  end
  return L.linked and linked().countsDenied(L)
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
