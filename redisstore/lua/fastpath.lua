-- The fast path: take from or peek at keys under buckets, fixed windows and sliding
-- counters, which is nearly every call. It needs none of the code below, and falls
-- through to it when a state is not as it expects: of other numbers, or left by a clock
-- that jumped. fastpath_single.lua says what arguments, states and answers are.
--
-- KEYS: the states. ARGV: T, P or K (take, peek, take so that it can be given
-- back), cost; for each key its head and three numbers; then, if the time is not the
-- server's, now. Answer: that of the one key, or a list of those of all; K's answer
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
  local pack, unpacked, floor = struct.pack, struct.unpack, math.floor
  local get = batched and redis.pcall or call -- no request may fail for another's key
  local now, at, first, answers = ARGV[3 + 4 * #KEYS], 1, 0, nil
  if batched then now, at, answers = ARGV[2] ~= '' and ARGV[2], 3, {} end
  local t = tonumber(now)
  if not now then
    local time = call('TIME')
    t = time[1] * 1000000.0 + time[2]
  end

  -- write writes a state that lives for so many µs.
  local function write(key, state, us)
    if now then
      call('SET', key, state)
    else
      call('SET', key, state, 'PX', format('%d', floor(us / 1000) + 2))
    end
  end

  -- looked reads the state of a window or counter, in what follows its head: the count
  -- of this window, of the one before, and how much of that counts; nothing where it is
  -- not as expected.
  local function looked(state, from, counter, period)
    local left, n, before, at = period - t % period, 0, 0, nil
    local ends = t + left
    if state then
      if counter then
        at, n, before = unpacked('>ddd', state, from)
      else
        at, n = unpacked('>dd', state, from)
      end
      if at > ends then return end
      if at < ends then
        before = counter and at + period == ends and n or 0
        n = 0
      end
    end
    local weighed = before * left
    if weighed >= 4503599627370496 then return end
    local rest = weighed % period
    weighed = (weighed - rest) / period
    return n, before, rest ~= 0 and weighed + 1 or weighed
  end

  local befores, tails, marks = {}, {}, {} -- of the request that is decided
  repeat
    local count, n = 1, #KEYS
    if batched then count, n, at = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), at + 2 end
    local verb, cost = ARGV[at], tonumber(ARGV[at + 1])
    local heads, letters, a, b, c = {}, {}, {}, {}, {}
    for i = 1, n do
      local head = ARGV[at + 4 * i - 2]
      heads[i], letters[i] = head, byte(head, 2)
      a[i], b[i], c[i] = tonumber(ARGV[at + 4 * i - 1]), tonumber(ARGV[at + 4 * i]), tonumber(ARGV[at + 4 * i + 1])
    end
    at = at + 2 + 4 * n

    for _ = 1, count do
      local all, denied, known = {}, false, true
      for i = 1, n do
        local head, letter, used, room = heads[i], letters[i], 0, nil
        local state, from = get('GET', KEYS[first + i]), #head
        if state and (type(state) ~= 'string' or sub(state, 1, from) ~= head) then
          known = false
          break
        end
        if letter == 119 or letter == 115 then
          local before, weighed
          if not state or #state == from + (letter == 115 and 24 or 16) then
            used, before, weighed = looked(state, from + 1, letter == 115, a[i])
          end
          if not weighed then
            known = false
            break
          end
          room, tails[i] = used + weighed + cost <= b[i], before
          all[i] = used + cost
        else
          local div, full, tail = c[i], b[i], nil
          if state then
            local size = div == 1 and 8 or 12
            local extra = #state - from - size
            if extra ~= 0 and extra ~= 16 then
              known = false
              break
            end
            used = (unpacked('>d', state, from + 1) - t) * div
            if div ~= 1 then used = used + unpacked('>I4', state, from + 9) end
            if used < 0 then used = 0 end
            if used > 2 * full then
              known = false
              break
            end
            if extra == 16 then tail = sub(state, -16) end
          end
          all[i], tails[i] = used + cost * a[i], tail
          room = all[i] <= full
        end
        befores[i] = used
        if not room and cost > 0 then
          denied, all[i] = true, -1 - used
          if isOpen(KEYS[first + i]) then
            known = false
            break
          end
        end
      end
      if known and cost > 0 and (denied or verb == 'P') then
        for i = 1, n do -- those that pass are not charged
          if all[i] >= 0 then all[i] = befores[i] end
        end
      elseif known and cost > 0 then
        for i = 1, n do
          local key, head, letter, after, tail = KEYS[first + i], heads[i], letters[i], all[i], tails[i]
          if letter == 119 or letter == 115 then
            local left = a[i] - t % a[i]
            if letter == 119 then
              write(key, head .. pack('>dd', t + left, after), left)
            else
              write(key, head .. pack('>ddd', t + left, after, tail), left + a[i])
            end
            if verb == 'K' then marks[i] = format('%.0f', t + left) end
          else
            local div = c[i]
            local rest = after % div
            local ticks = (after - rest) / div
            local state = head .. pack('>d', t + ticks)
            if div ~= 1 then state = state .. pack('>I4', rest) end
            if tail then -- the last low, and whose that is
              local low, token = unpacked('>d', tail), sub(tail, -8)
              low = letter == 113 and 0 or math.min(low, befores[i])
              if verb == 'K' and byte(token) >= 128 and t + unpacked('>d', token) > 1000000 then tail = nil end
              if tail then tail = pack('>d', low) .. token end
            end
            if verb == 'K' then
              tail = tail or pack('>dd', after, -t)
              marks[i] = sub(tail, -8)
              if byte(tail, -8) >= 128 and letter ~= 113 then
                marks[i] = marks[i] .. pack('>d', after) .. pack('>d', t) .. sub(tail, 1, 8)
              end
            end
            if tail then state = state .. tail end
            write(key, state, ticks)
          end
        end
      end
      local answer = false
      if known then
        for i = 1, n do
          if letters[i] == 119 or letters[i] == 115 then all[i] = { all[i], tails[i], a[i] - t % a[i] } end
        end
        if verb == 'K' and not denied then
          for i = 1, n do all[n + i] = marks[i] end
        end
        if overflowed then all[#all + 1] = overflowed end
        answer = #all == 1 and all[1] or all
      end
      if answer and not batched then return answer end
      if batched then answers[#answers + 1] = answer end
      first = first + n
    end
  until first == #KEYS
  if batched then return answers end
end
