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
  local state, used, low = call('GET', key), 0, nil
  if state then
    local from, size = #head, div == 1 and 8 or 12
    local extra = string.sub(state, 1, from) == head and #state - from - size
    used = nil
    if (extra == 0 or extra == 16) and string.byte(state, from + 1) ~= 58 then
      local moment, rest = struct.unpack('>d', state, from + 1), 0
      if div ~= 1 then rest = struct.unpack('>I4', state, from + 9) end
      used = math.max((moment - t) * div + rest, 0)
      if extra == 16 then low = struct.unpack('>d', state, from + size + 1) end
    end
  end
  if used and used <= 2 * full and t < 4503599627370496 then -- 2^52
    local charge = ARGV[2] * ARGV[4]
    if charge == 0 then return used end
    local after = used + charge
    if after > full then return -1 - used end
    local rest = after % div
    local ticks = (after - rest) / div
    local written = head .. struct.pack('>d', t + ticks)
    if div ~= 1 then written = written .. struct.pack('>I4', rest) end
    if low then
      if string.byte(head, 2) == 113 then low = 0 end -- a queue, which has told a delay
      written = written .. struct.pack('>d', math.min(low, used)) .. string.sub(state, -8)
    end
    if now then
      call('SET', key, written)
    else
      call('SET', key, written, 'PX', string.format('%d', math.floor(ticks / 1000) + 2))
    end
    return after
  end
end
