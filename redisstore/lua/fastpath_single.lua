-- One key under one bucket of small numbers, taken from, or a batch of requests
-- that differ only in their keys: a shorter fastpath.lua for the commonest calls. What
-- it cannot decide falls through, as do calls with overflow keys (overflow.lua).
--
-- KEYS: the states. ARGV, in this order:
--   T for one or R for several, cost
--   ~, n, n other limits whose place this one may have taken; nothing if there are none
--   head, step, full, div of this limit: T and the burst span of meter/gcra.go in 1/div µs
--   now, in µs, if the time is not the server's but that of Options.Now
-- A key that has nothing in use under this limit and has met one of the others falls
-- through. A state of this limit begins with head: '=', the algorithm's letter (q is a
-- queue), the limit's numbers. The TAT follows: µs as a double, then the rest in 1/div µs.
-- Large ones are in digits, after a ':' (58). While reservations are open, 16 bytes more
-- follow.
--
-- Answer: the backlog b after the decision in 1/div µs, or −1 − b where the limit
-- denies; to R one for each; false for a request that falls through, which has then
-- not been decided.

-- metOther reports whether a key has a state of one of n other limits of its name,
-- whose segments begin at an argument.
local function metOther(get, key, from, n)
  local begin, rest = string.match(key, '^([^}]*}:)[^:]+(:.*)$') -- not of one that newcomers share
  for i = from, begin and from + n - 1 or 0 do
    if get('GETRANGE', begin .. ARGV[i] .. rest, 0, 0) ~= '' then return true end
  end
end

if (ARGV[1] == 'T' and #KEYS == 1 or ARGV[1] == 'R') and not overflowed then
  local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
  local pack, unpacked, floor = struct.pack, struct.unpack, math.floor
  local at = ARGV[3] == '~' and 5 + ARGV[4] or 3 -- the limit itself
  local head, full, div, charge = ARGV[at], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), ARGV[2] * ARGV[at + 1]
  local from, size, queue, now = #head, div == 1 and 8 or 12, byte(head, 2) == 113, ARGV[at + 4]
  local answers = ARGV[1] == 'R' and {}
  local get = answers and redis.pcall or call -- no request may fail for another's key
  local t = tonumber(now)
  if not now then
    local time = call('TIME')
    t = time[1] * 1000000.0 + time[2]
  end
  for i = 1, #KEYS do
    local key, used, answer = KEYS[i], 0, false
    local state, low = get('GET', key), nil
    if state then
      local extra = type(state) == 'string' and sub(state, 1, from) == head and #state - from - size
      used = nil
      if (extra == 0 or extra == 16) and byte(state, from + 1) ~= 58 then
        used = (unpacked('>d', state, from + 1) - t) * div
        if div ~= 1 then used = used + unpacked('>I4', state, from + 9) end
        if used < 0 then used = 0 end
        if extra == 16 then low = unpacked('>d', state, from + size + 1) end
      end
    end
    if used == 0 and at > 3 and metOther(get, key, 5, ARGV[4]) then used = nil end
    if used and used <= 2 * full and t < 4503599627370496 then -- 2^52
      answer = used + charge
      if answer > full and charge ~= 0 then
        answer = -1 - used
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
      if not answers then return answer end
    end
    if answers then answers[i] = answer end
  end
  if answers then return answers end
end
