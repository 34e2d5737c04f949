-- What is in flight. A hash has a field for each holder of units of the key, a process or a
-- lease: how many units it holds, and the number of the call that said so. A sorted set says
-- until when each counts. A process renews what it holds; what is not renewed no longer
-- counts, and the next call drops it. The field = has the sum of all units, when it was
-- written (ms by the server's clock), and the time that the sorted set goes by: that stands
-- still when the clock is set back, so that nothing counts for longer then. Only one
-- call of a process for a key is on its way at a time, and says how many units the process
-- holds: what an earlier call came to is right again with the next, and one that comes late
-- changes nothing. A lease that may be given back by another process before the server is told
-- of it is kept with 0 units, so that it is not taken then.
--
-- The price of a call does not grow with the number of holders. One call drops at most 250;
-- where more have ended at one moment, the others count until the next calls.
--
-- KEYS: the hash, the sorted set. ARGV: F, the process, the number of the call (0 only looks),
-- the units that the process holds, how long they count from now in ms (0 keeps no field
-- without units); then for each request its limit and its units, which pass or do not, in order.
-- Answer: for each request how many units are in flight after it, or, below 0, that many
-- and one more where it was denied; "stale" if a later call has been here.

if ARGV[1] == 'F' then
  local call, me, seq, own, life, time = redis.call, ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), redis.call('TIME')
  local now, sum, told, mine = time[1] * 1000 + math.floor(time[2] / 1000), 0, 0, -1
  local t, first = now, call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local function write()
    local last = call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
    if #last == 0 then return call('DEL', KEYS[1]) end
    call('HSET', KEYS[1], '=', string.format('%d %d %d', sum, now, t))
    for i = 1, 2 do call('PEXPIRE', KEYS[i], string.format('%d', math.max(last[2] - t, 0) + 1)) end
  end
  if #first > 0 then
    local all, written, past = string.match(call('HGET', KEYS[1], '=') or '0 0 0', '^(%d+) (%d+) (%d+)$')
    sum, t = tonumber(all), past + math.max(now - written, 0)
    if tonumber(first[2]) <= t then
      local ends = call('ZRANGE', KEYS[2], 0, 249, 'WITHSCORES')
      for i = 1, #ends, 2 do
        if tonumber(ends[i + 1]) > t then break end
        sum = sum - string.match(call('HGET', KEYS[1], ends[i]) or '0', '^%d+')
        call('HDEL', KEYS[1], ends[i])
        call('ZREM', KEYS[2], ends[i])
      end
      write()
    end
    local held = call('HGET', KEYS[1], me)
    if held then
      local units, last = string.match(held, '^(%d+) (%d+)$')
      told, mine = tonumber(units), tonumber(last)
    end
  end
  if seq == 0 then own = told end
  if seq > 0 and mine > seq then return 'stale' end
  local out, renews, before, others = {}, #ARGV == 5, own, sum - told
  for i = 6, #ARGV, 2 do
    local after = others + own + ARGV[i + 1]
    if after <= tonumber(ARGV[i]) then
      out[#out + 1] = after
      if seq > 0 then own = own + ARGV[i + 1] end
    else
      out[#out + 1] = -(others + own) - 1
    end
  end
  -- A denial writes nothing. What was given back and is taken again does: an earlier call
  -- that still comes gave it back.
  if seq == 0 or (own == told and own == before and not renews) then return out end
  if #first == 0 then call('DEL', KEYS[1]) end -- what a server that evicts keys has left of one
  sum = others + own
  if own > 0 or (renews and life > 0) then
    call('HSET', KEYS[1], me, string.format('%d %d', own, seq))
    call('ZADD', KEYS[2], string.format('%d', t + life), me)
  elseif mine >= 0 then
    call('HDEL', KEYS[1], me)
    call('ZREM', KEYS[2], me)
  end
  write()
  return out
end
