-- The states of several limits of one name. Each limit has a state of its own under
-- a key. Where a list of limits takes the place of another, one that has met the
-- key under none of its forms starts with the greatest use under those that it may
-- have taken the place of, and from then on the states are linked: each names the
-- others, a request that one decides is charged to all, and they are forgotten
-- together. So each limit counts every request that the key has made since it met
-- it, and states that no other limit has met are as they always were.
--
-- L.linked are the states that L is linked to: their key, the segment of it that
-- names the limit, forms, what is held, links. Those of a request are read once;
-- what is asked by the request itself is written by that alone.

function newLinked()
  local linked, mostLinks = {}, 4

  -- read returns the segments that a part of a state names.
  function linked.read(part)
    local links = {}
    for segment in string.gmatch(part, ':([^:]+)') do links[#links + 1] = segment end
    return links
  end

  local function contains(all, one)
    for _, v in ipairs(all) do
      if v == one then return true end
    end
    return false
  end

  -- others reads the states of other limits at the key of a layer, and returns which
  -- segment of the key names its own. Those that newcomers share are not linked.
  local function others(L, segments, t, asked)
    local begin, own, rest = string.match(L.key, '^([^}]*}:)([^:]+)(:.*)$')
    local all = {}
    asked = asked or {}
    if not asked.others then
      asked.others, asked.keys = {}, {}
      for i = 1, #asked do asked.keys[KEYS[asked.first + i]] = true end
    end
    for i = 1, own and #segments or 0 do
      local key = begin .. segments[i] .. rest
      local S = asked.others[key]
      if S == nil and segments[i] ~= own then
        S = linked.state(key, segments[i], t) or false
        asked.others[key] = S
      end
      if S then
        S.asked = asked.keys[key]
        all[#all + 1] = S
      end
    end
    return all, own
  end

  -- state reads that of another limit, unless there is none or it cannot be read.
  function linked.state(key, segment, t)
    local state = redis.call('GET', key)
    if not state then return end
    local S = { key = key, segment = segment, forms = {}, held = {}, links = {} }
    for _, part in ipairs(split(state)) do
      if string.sub(part, 1, 3) == '=h:' then
        S.held, S.stay = readHeld(part, t)
      elseif string.sub(part, 1, 3) == '=o:' then
        S.links = linked.read(part)
      else
        local P = former(part, t)
        if not P then return end
        local idle = P.kind.reset(P) == 0
        S.counts = S.counts or not idle
        if not idle or P.letter ~= 'c' then S.forms[#S.forms + 1] = P end
      end
    end
    S.counts = S.counts or #S.held > 0
    return S
  end

  -- stays reports whether a state counts or is linked to one that does, be it through
  -- others, such as another limit of the same list: then it is charged with what these
  -- let pass.
  local function stays(L, S, t, asked, seen)
    if S.counts then return true end
    seen = seen or {}
    seen[S.key] = true
    for _, O in ipairs(others(L, S.links, t, asked)) do
      if not seen[O.key] and contains(O.links, S.segment) and stays(L, O, t, asked, seen) then return true end
    end
    return false
  end

  -- join reads the states that a state names and that name it. It returns whether
  -- any of them stays.
  function linked.join(L, t, asked)
    local all, own = others(L, L.links, t, asked)
    local counts = false
    L.linked = {}
    for _, S in ipairs(all) do
      if contains(S.links, own) and not S.left then
        L.linked[#L.linked + 1] = S
        counts = counts or stays(L, S, t, asked)
      end
    end
    linked.name(L)
    return counts
  end

  -- name has a state name those that it is linked to.
  function linked.name(L)
    if L.linked and #L.linked == 0 then L.linked = nil end
    L.links = {}
    for i, S in ipairs(L.linked or {}) do L.links[i] = S.segment end
  end

  -- leave lets go of states that have nothing left to count: they go with what is
  -- written next, since those that they are linked to besides may still count. The other
  -- limits of the request let go of them, too.
  function linked.leave(L)
    local some = {}
    L.gone = {}
    for _, S in ipairs(L.linked or {}) do
      local stays = S.counts or S.asked
      local all = stays and some or L.gone
      all[#all + 1] = S
      S.left = not stays
    end
    L.linked = some
    linked.name(L)
  end

  -- drop has a layer let go of what another one of the request has let go of.
  local function drop(L)
    local some, left = {}, false
    for _, S in ipairs(L.linked) do
      if S.left then left = true else some[#some + 1] = S end
    end
    if not left then return end
    L.gone = L.gone or {}
    for _, S in ipairs(L.linked) do
      if S.left then L.gone[#L.gone + 1] = S end
    end
    L.linked = some
    linked.name(L)
  end

  -- forget deletes the states that a layer has let go of.
  function linked.forget(L)
    for _, S in ipairs(L.gone) do
      if not S.forgotten then
        S.forgotten = true
        turn(S)
        redis.call('DEL', S.key)
      end
    end
  end

  -- give takes units out of a state that is not written: a refund asks each limit of a
  -- name by itself.
  local function give(S, n)
    if S.given then return end
    S.given = true
    for _, P in ipairs(S.forms) do P.kind.refund(P, n) end
    for i = #S.held, 1, -1 do
      local o = S.held[i]
      o.units = sub(o.units, n)
      if o.units == 0 then table.remove(S.held, i) end
    end
  end

  -- follow has a limit that has not met the key start with the greatest use under
  -- other limits, if any stays.
  function linked.follow(L, segments, t, refunded, asked)
    local before, own = others(L, segments, t, asked)
    local all, sources = {}, {}
    for _, S in ipairs(before) do
      if stays(L, S, t, asked) then all[#all + 1] = S end
    end
    for _, S in ipairs(all) do
      if refunded then give(S, refunded) end
      for _, P in ipairs(S.forms) do sources[#sources + 1] = P end
      if #S.held > 0 then sources[#sources + 1] = asForm(S.held) end
    end
    if #all == 0 then return end
    L.linked, L.others, L.place, L.turned, L.unmet, L.refunded, L.own = all, {}, 1, true, true, refunded and true, own
    linked.name(L)
    meet(L, sources, t)
  end

  -- turned notes that the limit of a layer decides: what was reserved under others
  -- gives nothing back, and these are no longer asked alone.
  local function turned(L)
    for _, S in ipairs(L.linked) do
      if (S.stay or L.own) and not S.turned and not S.asked then
        turn(S)
        S.stay, S.turned, S.changed = nil, true, true
      end
    end
    L.stay = L.stay or stayUntil(L)
  end

  -- charge charges the states that a layer is linked to, once for each request.
  function linked.charge(L, n, promised, denied)
    if not L.linked then return end
    drop(L)
    if not L.linked then return end
    turned(L)
    for _, S in ipairs(L.linked) do
      if not S.charged and not S.asked then
        S.charged, S.changed = true, true
        for _, P in ipairs(S.forms) do
          P.open = nil
          if not denied or P.countDenied then P.kind.charge(P, n, promised) end
        end
      end
    end
  end

  function linked.countsDenied(L)
    for _, S in ipairs(L.linked or {}) do
      for _, P in ipairs(S.forms) do
        if P.countDenied then return true end
      end
    end
  end

  -- save writes the states that a layer is linked to where they have changed, and
  -- returns when all of them are as if never seen.
  function linked.save(L, reset)
    drop(L)
    if not L.linked then return reset end
    if L.own and not L.unmet then -- it has met the key
      turned(L)
      for _, S in ipairs(L.linked) do
        if not contains(S.links, L.own) then S.links[#S.links + 1] = L.own end
        if #S.links > mostLinks then table.remove(S.links, 1) end
      end
    end
    for _, S in ipairs(L.linked) do
      for _, P in ipairs(S.forms) do reset = most(reset, micros(P, P.kind.reset(P))) end
      for _, o in ipairs(S.held) do reset = most(reset, sub(o.ends, L.loaded)) end
    end
    for _, S in ipairs(L.linked) do
      local all = {}
      for i, P in ipairs(S.forms) do all[i] = P.kind.write(P) end
      if S.changed and (reset == 0 or #all == 0 and #S.held == 0) then
        redis.call('DEL', S.key)
      elseif S.changed then
        put(S.key, joined(all, S), reset)
      end
    end
    return reset
  end

  return linked
end
