-- The fast path: take from or peek at keys under buckets of small numbers, which is
-- nearly every call. It needs none of the code below, and falls through to it when a
-- state is not as it expects: left by another form of the limit, or by a clock
-- that jumped. bucket.lua describes the state.
--
-- KEYS: the states. ARGV: T, P or K (take, peek, take so that it can be given
-- back), cost; for each key, behind a ~ and their number, the other limits whose place
-- its limit may have taken, then its head, step, full, div; then, if the time is not the server's, now.
-- Answer: for each key the backlog b after the decision in 1/div µs, or −1 − b
-- where its limit denies; a number where there is one key, else a list; K's answer
-- is a list that ends with a mark for each charge (see open.lua).
--
-- Batches: ARGV: B, now or nothing; for each run of requests that are alike how many
-- there are, how many keys each has, then as above. They are decided one after the
-- other, at one moment. Answer: one for each; false for a request that falls
-- through, which has then not been decided.

local ARGV, KEYS = ARGV, KEYS
local batched = ARGV[1] == 'B'

if batched or ARGV[1] == 'T' or ARGV[1] == 'P' or ARGV[1] == 'K' then
  local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
  local pack, unpacked, marks = struct.pack, struct.unpack, {}
  local get = batched and redis.pcall or call -- no request may fail for another's key
  local now, at, first, answers = nil, 1, 0, nil
  if batched then
    now, at, answers = ARGV[2] ~= '' and ARGV[2], 3, {}
  else
    local behind = 3
    for _ = 1, #KEYS do
      if ARGV[behind] == '~' then behind = behind + 2 + ARGV[behind + 1] end
      behind = behind + 4
    end
    now = ARGV[behind]
  end
  local t = tonumber(now)
  if not now then
    local time = call('TIME')
    t = time[1] * 1000000.0 + time[2]
  end

  local before, tails = {}, {} -- of the request that is decided
  repeat
    local count, n = 1, #KEYS
    if batched then count, n, at = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), at + 2 end
    local verb, cost = ARGV[at], tonumber(ARGV[at + 1])
    local heads, charges, fulls, divs, others = {}, {}, {}, {}, {}
    for i = 1, n do
      if ARGV[at + 2] == '~' then
        others[i] = at + 4
        at = at + 2 + ARGV[at + 3]
      end
      heads[i], fulls[i], divs[i] = ARGV[at + 2], tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
      charges[i] = cost * ARGV[at + 3]
      at = at + 4
    end
    at = at + 2

    for _ = 1, count do
      local backlogs, denied, known = {}, false, t < 4503599627370496 -- 2^52
      for i = 1, n do
        local head, full, div, used, tail = heads[i], fulls[i], divs[i], 0, nil
        local state = get('GET', KEYS[first + i])
        if state then
          local from, size = #head, div == 1 and 8 or 12
          local extra = type(state) == 'string' and sub(state, 1, from) == head and #state - from - size
          if extra ~= 0 and extra ~= 16 or byte(state, from + 1) == 58 then
            known = false
            break
          end
          used = (unpacked('>d', state, from + 1) - t) * div
          if div ~= 1 then used = used + unpacked('>I4', state, from + 9) end
          if used < 0 then used = 0 end
          known = known and used <= 2 * full
          if extra == 16 then tail = sub(state, -16) end
        end
        local other = used == 0 and others[i]
        if other and metOther(get, KEYS[first + i], other, ARGV[other - 1]) then
          known = false
          break
        end
        local after = used + charges[i]
        if after > full and cost > 0 then
          denied, after = true, -1 - used
        end
        backlogs[i], before[i], tails[i] = after, used, tail
      end
      if known and cost > 0 and (denied or verb == 'P') then
        for i = 1, n do -- those that pass are not charged
          if backlogs[i] >= 0 then backlogs[i] = before[i] end
        end
      elseif known and cost > 0 then
        for i = 1, n do
          local head, div, after = heads[i], divs[i], backlogs[i]
          local rest = after % div
          local ticks = (after - rest) / div
          local state, tail = head .. pack('>d', t + ticks), tails[i]
          if div ~= 1 then state = state .. pack('>I4', rest) end
          if tail then -- the last low, and whose that is
            local low, token = unpacked('>d', tail), sub(tail, -8)
            low = byte(head, 2) == 113 and 0 or math.min(low, before[i])
            if verb == 'K' and byte(token) >= 128 and t + unpacked('>d', token) > 1000000 then tail = nil end
            if tail then tail = pack('>d', low) .. token end
          end
          if verb == 'K' then
            tail = tail or pack('>dd', after, -t)
            marks[i] = sub(tail, -8)
            if byte(tail, -8) >= 128 and byte(head, 2) ~= 113 then
              marks[i] = marks[i] .. pack('>d', after) .. pack('>d', t) .. sub(tail, 1, 8)
            end
          end
          if tail then state = state .. tail end
          if now then
            call('SET', KEYS[first + i], state)
          else
            call('SET', KEYS[first + i], state, 'PX', format('%d', math.floor(ticks / 1000) + 2))
          end
        end
      end
      if verb == 'K' and not denied then
        for i = 1, n do backlogs[n + i] = marks[i] end
      end
      if overflowed then backlogs[#backlogs + 1] = overflowed end
      local answer = known and (#backlogs == 1 and backlogs[1] or backlogs)
      if answer and not batched then return answer end
      if batched then answers[#answers + 1] = answer end
      first = first + n
    end
  until first == #KEYS
  if batched then return answers end
end
