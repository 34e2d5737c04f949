-- Leases: units of a bucket that a node takes ahead, to spend them without asking. They
-- are charged when they are granted. A hash beside the state keeps for each node with a
-- lease:
--
--   node: <sequence> <units> <end, µs> <when its newest grant is worked off, µs>
--
-- so that what all nodes have in hand is never more than `most`.
--
-- KEYS: the state, the hash. ARGV: L, head, step, full, div (of the bucket with
-- its burst less `most`), node, sequence, most, units given back, units still
-- in hand, least and most units wanted, life of a lease in µs; then, if the
-- time is not the server's, now.
-- Answer: units granted, the backlog after that in 1/div µs, and for how many
-- there was room among the leases; nothing where the state is not as expected
-- (see fastpath.lua), or a later call of this node has been answered.

-- lease is a call, alone or in a batch, at t.
local function lease(KEYS, ARGV, t, virtual)
  local call, sub, format, floor = redis.call, string.sub, string.format, math.floor
  local head, step, full, div = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local node, sequence, most = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
  local back, held, need, want = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
  local life = tonumber(ARGV[13])

  local used, state = 0, call('GET', KEYS[1])
  if state then
    local from, size = #head, div == 1 and 8 or 12
    if sub(state, 1, from) ~= head or #state ~= from + size then return end
    used = (struct.unpack('>d', state, from + 1) - t) * div
    if div ~= 1 then used = used + struct.unpack('>I4', state, from + 9) end
    if used < 0 then used = 0 end
    if used > 2 * full then return end
  end

  local others, nodes, mark = 0, 1, 0
  local all = call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    local s, units, finish, worked = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    if all[i] == node then
      if tonumber(s) >= sequence then return end
      mark = tonumber(worked)
    elseif tonumber(finish) <= t then
      call('HDEL', KEYS[2], all[i])
    else
      others, nodes = others + units, nodes + 1
      if tonumber(finish) > t + life then -- of before the clock was stepped back
        call('HSET', KEYS[2], all[i], format('%s %s %d %s', s, units, t + life, worked))
      end
    end
  end

  -- what comes back is forgiven as far as time has not done so
  local before = used
  if back > 0 and mark > t then
    used = used - math.min(back * step, (mark - t) * div)
    if used < 0 then used = 0 end
  end

  local room = math.min(floor(most / nodes), most - others) - held
  if room < 0 then room = 0 end
  local granted = 0
  if used < full then granted = floor((full - used) / step) end
  granted = math.min(want, granted, room)
  if granted < need then granted = 0 end
  if granted > 0 then
    used = used + granted * step
    mark = t + floor(used / div)
  end

  if used ~= before then
    local ahead = floor(used / div)
    local rest = used - ahead * div
    local text = head .. struct.pack('>d', t + ahead)
    if div ~= 1 then text = text .. struct.pack('>I4', rest) end
    if used == 0 then
      call('DEL', KEYS[1])
    elseif virtual then
      call('SET', KEYS[1], text)
    else
      call('SET', KEYS[1], text, 'PX', format('%d', floor(ahead / 1000) + 2))
    end
  end
  if want == 0 and held == 0 then
    call('HDEL', KEYS[2], node)
  else
    call('HSET', KEYS[2], node, format('%d %d %d %d', sequence, held + granted, t + life, mark))
    if not virtual then call('PEXPIRE', KEYS[2], format('%d', floor(life / 1000) + 2)) end
  end
  return { granted, used, room }
end

if ARGV[1] == 'L' then
  if ARGV[14] then return lease(KEYS, ARGV, tonumber(ARGV[14]), true) end
  local time = redis.call('TIME')
  return lease(KEYS, ARGV, time[1] * 1000000.0 + time[2])
end
