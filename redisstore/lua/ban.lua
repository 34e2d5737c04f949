-- Bans. A ban of a key under the limits of one identity stands beside the state:
--
--   stint:{2f1}::ban:limit:key   <end, in µs>:<length>
--
-- Only calls with the length of a ban (b after a weight) look at it. A key that shares an
-- overflow key is not banned: that would ban the others too.

-- loadBan reads how long the ban beside the state at key still lasts. A ban that ends later
-- than its own length from now was begun before the clock stepped back.
local function loadBan(L, key, t)
  L.banned, L.banKey = 0, string.gsub(key, '}:', '}::ban:', 1)
  local kept = redis.call('GET', L.banKey)
  if not kept then return end
  local ends, length = string.match(kept, '^(%d+):(%d+)$')
  if not ends then return redis.error_reply('STINT a value that is no ban, or one of another version') end
  L.banned, length = most(ends - t, 0), tonumber(length)
  if L.banned > length then L.banned, L.begun = length, length end
end

-- ban begins a ban if a layer denies a cost within its capacity, unless the key is banned.
local function ban(L, cost)
  if L.banned == 0 and L.ban > 0 and cost * L.weight <= L.capacity and not L.shared then
    L.banned, L.begun = L.ban, L.ban
  end
end

-- saveBan writes a ban that has begun.
local function saveBan(L)
  keep(L.banKey, text(L.loaded + L.banned) .. ':' .. text(L.begun), L.banned)
end
