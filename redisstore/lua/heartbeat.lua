-- A heartbeat: a process says that it shares the store, and learns how many do.
-- A hash keeps of each until when it counts, in µs by the server's clock.
--
-- KEYS: the hash. ARGV: H, node, for how long it counts from now in µs: 0 takes
-- it out.
-- Answer: how many there are; below 0, that many, if the node was not among them.

-- heartbeat is a call, alone or in a batch, at t.
local function heartbeat(KEYS, ARGV, t)
  local call, node, life, nodes = redis.call, ARGV[2], tonumber(ARGV[3]), 0
  local known = false
  local all = call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local finish = tonumber(all[i + 1])
    if all[i] == node then
      known = true
    else
      if not finish or finish <= t then
        call('HDEL', KEYS[1], all[i])
      else
        nodes = nodes + 1
        if life > 0 and finish > t + life then -- of before the clock was stepped back
          call('HSET', KEYS[1], all[i], string.format('%d', t + life))
        end
      end
    end
  end
  if life == 0 then
    call('HDEL', KEYS[1], node)
    return nodes
  end
  call('HSET', KEYS[1], node, string.format('%d', t + life))
  call('PEXPIRE', KEYS[1], string.format('%d', math.floor(life / 1000) + 2))
  return known and nodes + 1 or -nodes - 1
end

if ARGV[1] == 'H' then
  local time = redis.call('TIME')
  return heartbeat(KEYS, ARGV, time[1] * 1000000 + time[2])
end
