-- What is in flight. A hash has a field for each process that holds units of the key: how
-- many, until when they count (ms by the server's clock), the number of the call that
-- said so, and how long they count from then. A process renews what it holds; what it does
-- not renew no longer counts, and whoever takes units next drops it. What would count for
-- longer than that from now was said before the clock was set back, and is moved. Only one
-- call of a process for a key is on its way at a time, and says how many units the process
-- holds: what an earlier call came to is right again with the next, and one that comes late
-- changes nothing. A lease that may be given back by another process before the server is told
-- of it is kept with 0 units, so that it is not taken then.
--
-- KEYS: the hash. ARGV: F, the process, the number of the call (0 only looks), the units that
-- the process holds, how long they count from now in ms (0 keeps no field without units);
-- then for each request its limit and its units, which pass or do not, in order.
-- Answer: for each request how many units are in flight after it, or, below 0, that many
-- and one more where it was denied; "stale" if a later call has been here.

if ARGV[1] == 'F' then
  local call, me, seq, own, life, time = redis.call, ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), redis.call('TIME')
  local t, all, others, mine, told, gone = time[1] * 1000 + math.floor(time[2] / 1000), call('HGETALL', KEYS[1]), 0, -1, 0, {}
  local stays = t + life -- until the last of them ends
  for i = 1, #all, 2 do
    local n, ends, last, lease = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    if all[i] ~= me and tonumber(ends) > t + lease then
      ends = t + lease
      call('HSET', KEYS[1], all[i], string.format('%d %d %d %d', n, ends, last, lease))
    end
    if all[i] == me then
      told, mine = tonumber(n), tonumber(last)
    elseif tonumber(ends) > t then
      others, stays = others + n, math.max(stays, tonumber(ends))
    else
      gone[#gone + 1] = all[i]
    end
  end
  if seq == 0 then own = told end
  if seq > 0 and mine > seq then return 'stale' end
  local out, renews, before = {}, #ARGV == 5, own
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
  if own == 0 and not (renews and life > 0) then
    if mine >= 0 then call('HDEL', KEYS[1], me) end
  else
    call('HSET', KEYS[1], me, string.format('%d %d %d %d', own, t + life, seq, life))
    call('PEXPIRE', KEYS[1], string.format('%d', stays - t + 1))
  end
  for i = 1, #gone do call('HDEL', KEYS[1], gone[i]) end
  return out
end
