-- Reservations: a hash with the cost, its end, the answer once it is settled,
-- and for each layer where it was charged. Each key's generation is drawn with
-- its first reservation and forgotten by a reset, and with it all reservations
-- on the key.

local function reservations(layers, n, t)
  local r = {}
  local record = KEYS[#KEYS]

  -- expire bounds how long a key is kept, unless it is kept longer already.
  local function expire(key, ms)
    if virtual then return end
    local left = redis.call('PTTL', key)
    if left < 0 or less(left, ms) then redis.call('PEXPIRE', key, text(ms)) end
  end

  -- identity says which limit a layer is, in this form.
  local function identity(L)
    if L.bounds then return L.head .. text(L.count) end
    return table.concat(ARGV, ' ', L.from, L.to)
  end

  -- reserve remembers what was charged and where to.
  function r.reserve(cost, ttl, token, about)
    local ms = quo(add(ttl, 1999), 1000)
    local fields = { 'cost', text(cost), 'end', text(add(t, ttl)), 'about', about }
    for i, L in ipairs(layers) do
      local generation = redis.call('GET', KEYS[n + i])
      if not generation then
        generation = token
        redis.call('SET', KEYS[n + i], generation)
      end
      expire(KEYS[n + i], ms)
      fields[#fields + 1], fields[#fields + 2] = 'generation' .. i, generation
      fields[#fields + 1], fields[#fields + 2] = 'limit' .. i, identity(L)
      fields[#fields + 1], fields[#fields + 2] = 'mark' .. i, L.kind.mark(L)
    end
    if overflowed then fields[#fields + 1], fields[#fields + 2] = 'overflowed', overflowed end
    redis.call('HSET', record, unpack(fields))
    expire(record, ms)
  end

  -- find returns the reservation that is open or settled, if any.
  local function find()
    local found, fields = {}, redis.call('HGETALL', record)
    for i = 1, #fields, 2 do found[fields[i]] = fields[i + 1] end
    if not found.cost or not less(t, whole(found['end'])) then return end
    for i = 1, n do
      if redis.call('GET', KEYS[n + i]) ~= found['generation' .. i] then return end
    end
    return found
  end

  -- settle replaces the cost by the true one, once. Under another form of the
  -- limit, what a mark means is not known, and nothing is given back. The answer
  -- ends with the capacities, so that it is the same again when they are others.
  function r.settle(cost, standing)
    local found = find()
    if not found then return end
    if found.answer then return cmsgpack.unpack(found.answer) end
    for i, L in ipairs(layers) do
      local reserved, actual = units(L, whole(found.cost)), units(L, cost)
      if less(reserved, actual) then
        L.kind.charge(L, sub(actual, reserved))
        L.changed = true
      elseif less(actual, reserved) and found['limit' .. i] == identity(L) then
        L.kind.giveBack(L, found['mark' .. i], sub(reserved, actual))
        L.changed = true
      end
    end
    local out = standing()
    for _, L in ipairs(layers) do out[#out + 1] = integer(L.capacity) end
    redis.call('HSET', record, 'answer', cmsgpack.pack(out))
    return out
  end

  return r
end
