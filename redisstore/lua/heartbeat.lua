-- A heartbeat: a process says that it shares the store, and learns how many do; or by
-- which rules it decides, and how many others there are.
-- A sorted set keeps of each until when it counts, in µs by the server's clock. A beat
-- costs as much among a thousand processes as among ten.
--
-- KEYS: the set. ARGV: H, node, for how long it counts from now in µs: 0 takes
-- it out.
-- Answer: how many there are; below 0, that many, if the node was not among them.

if ARGV[1] == 'H' then
  local call, node, life, time = redis.call, ARGV[2], tonumber(ARGV[3]), redis.call('TIME')
  local t = time[1] * 1000000 + time[2]
  local new = call('ZADD', KEYS[1], string.format('%d', t + life), node)
  call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', t)) -- those that have gone
  if life == 0 then
    return call('ZCARD', KEYS[1])
  end
  -- of before the clock was stepped back: who is there says so within a second
  call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%d', t + life), '+inf')
  call('PEXPIRE', KEYS[1], string.format('%d', math.floor(life / 1000) + 2))
  local nodes = call('ZCARD', KEYS[1])
  return new == 0 and nodes or -nodes
end
