-- One key under one bucket of small numbers, taken from: what fastpath.lua does, in
-- a straight line, since most calls are this. What it cannot tell falls through.
--
-- KEYS: the state. ARGV: T, cost, head, step, full, div; then, if the time is not
-- the server's, now. Answer: as fastpath.lua's.

if ARGV[1] == 'T' and #KEYS == 1 and not overflowed then
  local call, key, now = redis.call, KEYS[1], ARGV[7]
  local head, full, div = ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
  local t = tonumber(now)
  if not now then
    local time = call('TIME')
    t = time[1] * 1000000.0 + time[2]
  end
  local state, used = call('GET', key), 0
  if state then
    local from = #head
    local moment = string.sub(state, 1, from) == head and tonumber(string.sub(state, from + 1, from + 16))
    local rest = moment and (#state == from + 16 and 0 or tonumber(string.sub(state, from + 18)))
    used = rest and math.max((moment - t) * div + rest, 0)
  end
  if used and used <= 2 * full and t < 4503599627370496 then -- 2^52
    local charge = ARGV[2] * ARGV[4]
    if charge == 0 then return used end
    local after = used + charge
    if after > full then return -1 - used end
    local rest = after % div
    local ticks = (after - rest) / div
    if div == 1 then
      state = head .. string.format('%016d', t + ticks)
    else
      state = head .. string.format('%016d:%d', t + ticks, rest)
    end
    if now then
      call('SET', key, state)
    else
      call('SET', key, state, 'PX', string.format('%d', math.floor(ticks / 1000) + 2))
    end
    return after
  end
end
