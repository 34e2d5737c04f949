-- The record of a name: which lists of limits were asked under it, when each was last
-- and for how long it counts since, in ms. So a process that starts with another list
-- knows which limits that may have taken the place of. A list stays for as long as any
-- in the record counts, since states that are linked stay together.
--
-- This is a script by itself. KEYS: a hash. ARGV: a list, for how long it counts in ms,
-- how much older it may stand there; then, if the time is not the server's, now (µs).
-- Answer: all lists, that which was asked last first.

local call, key, own, life, older, now = redis.call, KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
now = math.floor(now / 1000)
local most, all, mine, longest = 16, {}, { own, now, life }, life
local stands = false
local read = call('HGETALL', key)
for i = 1, #read, 2 do
  local at, counts = string.match(read[i + 1], '^(%d+) (%d+)$')
  local one = { read[i], math.min(tonumber(at) or 0, now), tonumber(counts) or 0 }
  if read[i] ~= own then
    all[#all + 1] = one
    if one[2] + one[3] > now then longest = math.max(longest, one[3]) end
  elseif one[2] + older >= now and one[3] >= life then
    mine, stands = one, true
  end
end
local function newer(a, b)
  if a[2] ~= b[2] then return a[2] > b[2] end
  return a[1] < b[1]
end
table.sort(all, newer)
while #all > 0 and (#all >= most or all[#all][2] + longest <= now) do call('HDEL', key, table.remove(all)[1]) end
if not stands then
  call('HSET', key, own, string.format('%d %d', now, life))
  if not ARGV[4] then call('PEXPIRE', key, string.format('%d', longest)) end
end
all[#all + 1] = mine
table.sort(all, newer)
for i, one in ipairs(all) do all[i] = one[1] end
return all
