-- Keys under buckets of small numbers, taken from or looked at: what nearly
-- every call is. It needs none of what follows, and falls through to it when a
-- state is not as it expects: left by another form of the limit, or by a clock
-- that jumped. How states look stands in bucket.lua.
--
-- KEYS: the states. ARGV: T or P (take, peek), cost; for each key its limit's
-- head, step, full, div; then, if the time is not the server's, now.
-- Answer: for each key the backlog b after the decision in 1/div µs, or −1 − b
-- where its limit denies; a number where there is one key, else a list.

local ARGV, KEYS = ARGV, KEYS

if ARGV[1] == 'T' or ARGV[1] == 'P' then
  local call, sub, format, n = redis.call, string.sub, string.format, #KEYS
  local cost, t = tonumber(ARGV[2]), ARGV[4 * n + 3]
  if t then
    t = tonumber(t)
  else
    local time = call('TIME')
    t = time[1] * 1000000 + time[2]
  end
  local backlogs, denied, known = {}, false, t < 4503599627370496 -- 2^52
  for i = 1, n do
    local at, used, full = 4 * i, 0, tonumber(ARGV[4 * i + 1])
    local state = call('GET', KEYS[i])
    if state then
      local head = ARGV[at - 1]
      local from = #head
      if sub(state, 1, from) ~= head then
        known = false
        break
      end
      used = sub(state, from + 1, from + 16) - t
      if #state > from + 16 then used = used * ARGV[at + 2] + sub(state, from + 18) end
      if used < 0 then used = 0 end
      known = known and used <= 2 * full
    end
    local after = used + cost * ARGV[at]
    if after > full and cost > 0 then
      denied, after = true, -1 - used
    end
    backlogs[i] = after
  end
  if known then
    if cost > 0 and (denied or ARGV[1] == 'P') then
      for i = 1, n do -- those that pass are not charged
        if backlogs[i] >= 0 then backlogs[i] = backlogs[i] - cost * ARGV[4 * i] end
      end
    elseif cost > 0 then
      for i = 1, n do
        local head, after, div, state = ARGV[4 * i - 1], backlogs[i], ARGV[4 * i + 2], nil
        if div == '1' then
          state = head .. format('%016d', t + after)
        else
          local rest = after % div
          after = (after - rest) / div
          state = head .. format('%016d:%d', t + after, rest)
        end
        if ARGV[4 * n + 3] then
          call('SET', KEYS[i], state)
        else
          call('SET', KEYS[i], state, 'PX', format('%d', after / 1000 + 2))
        end
      end
    end
    if n == 1 then return backlogs[1] end
    return backlogs
  end
end
