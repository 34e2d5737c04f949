-- One key under one bucket, fixed window or sliding counter, taken from, or a batch of
-- requests that differ only in their keys: a shorter fastpath.lua for the commonest
-- calls. What it cannot decide falls through, as do calls with overflow keys
-- (overflow.lua).
--
-- KEYS: the states. ARGV, in this order:
--   T for one or R for several, cost
--   head, then of a bucket step, full, div: T and the burst span of meter/gcra.go in
--   1/div µs; of a window or counter period in µs, count, nothing
--   now, in µs, if the time is not the server's but that of Options.Now
-- A state begins with head: '=', the algorithm's letter (g bucket, q queue, w window, s
-- counter), numbers. Of a bucket the TAT follows: µs as a double, then the rest in
-- 1/div µs, and while reservations are open 16 bytes more. What a window and a counter
-- keep is in window.lua and counter.lua.
--
-- Answer: of a bucket the backlog b after the decision in 1/div µs, or −1 − b where the
-- limit denies; of a window or counter a list: n or −1 − n, where n is the count of this
-- window, that of the window before, and the µs until it ends. To R one for each; false
-- for a request that falls through, which has then not been decided.

-- isOpen reports whether reservations of a state are open, which may excuse its denials:
-- see open.lua.
local function isOpen(state)
  local key = string.gsub(state, '}:', '}::open:', 1)
  local n = redis.pcall('HGET', key, 'n')
  return type(n) == 'string' and n ~= '0'
end

if (ARGV[1] == 'T' and #KEYS == 1 or ARGV[1] == 'R') and not overflowed then
  local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
  local pack, unpacked, floor = struct.pack, struct.unpack, math.floor
  local head, now, letter = ARGV[3], ARGV[7], byte(ARGV[3], 2)
  local from = #head
  local answers = ARGV[1] == 'R' and {}
  local get = answers and redis.pcall or call -- no request may fail for another's key
  local t = tonumber(now)
  if not now then
    local time = call('TIME')
    t = time[1] * 1000000.0 + time[2]
  end
  if letter == 103 or letter == 113 then
    local full, div, charge = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[2] * ARGV[4]
    local size, queue = div == 1 and 8 or 12, letter == 113
    for i = 1, #KEYS do
      local key, used, answer = KEYS[i], 0, false
      local state, low = get('GET', key), nil
      if state then
        local extra = type(state) == 'string' and sub(state, 1, from) == head and #state - from - size
        used = nil
        if extra == 0 or extra == 16 then
          used = (unpacked('>d', state, from + 1) - t) * div
          if div ~= 1 then used = used + unpacked('>I4', state, from + 9) end
          if used < 0 then used = 0 end
          if extra == 16 then low = unpacked('>d', state, from + size + 1) end
        end
      end
      if used and used <= 2 * full then
        answer = used + charge
        if answer > full and charge ~= 0 then
          answer = not isOpen(key) and -1 - used
        elseif charge ~= 0 then
          local rest = answer % div
          local ticks = (answer - rest) / div
          local written = head .. pack('>d', t + ticks)
          if div ~= 1 then written = written .. pack('>I4', rest) end
          if low then
            if queue then low = 0 end -- a request has got its delay
            written = written .. pack('>d', low < used and low or used) .. sub(state, -8)
          end
          if now then
            call('SET', key, written)
          else
            call('SET', key, written, 'PX', format('%d', floor(ticks / 1000) + 2))
          end
        end
        if answer and not answers then return answer end
      end
      if answers then answers[i] = answer end
    end
  else
    local cost, period, count = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
    local counter, left = letter == 115, period - t % period
    local ends, size, stays = t + left, counter and 24 or 16, nil
    if not now then stays = format('%d', floor((counter and left + period or left) / 1000) + 2) end
    for i = 1, #KEYS do
      local key = KEYS[i]
      local state, n, before, answer = get('GET', key), 0, 0, false
      if state then
        if type(state) == 'string' and #state == from + size and sub(state, 1, from) == head then
          local at
          if counter then
            at, n, before = unpacked('>ddd', state, from + 1)
          else
            at, n = unpacked('>dd', state, from + 1)
          end
          if at < ends then
            before = counter and at + period == ends and n or 0
            n = 0
          elseif at > ends then -- the clock stepped back
            n = nil
          end
        else
          n = nil
        end
      end
      local weighed = before * left -- of a debt it may be too large for here
      if n and weighed < 4503599627370496 then
        if before ~= 0 then
          local rest = weighed % period
          weighed = (weighed - rest) / period
          if rest ~= 0 then weighed = weighed + 1 end
        end
        if cost == 0 then
          answer = { n, before, left }
        elseif n + weighed + cost > count then
          answer = not isOpen(key) and { -1 - n, before, left }
        else
          n = n + cost
          local written = head .. (counter and pack('>ddd', ends, n, before) or pack('>dd', ends, n))
          if now then
            call('SET', key, written)
          else
            call('SET', key, written, 'PX', stays)
          end
          answer = { n, before, left }
        end
        if answer and not answers then return answer end
      end
      if answers then answers[i] = answer end
    end
  end
  if answers then return answers end
end
