-- The sliding log, as it is written; and a log by itself, taken from or looked
-- at. What else is done to logs stands in log.lua, how entries are packed in
-- entries.lua. A log has one of two forms:
--
--   =l60000000:base:at:units:total:<entries>
--   =l60000000:*<base, at, units, total, first, last, size><entries><room>
--
-- The first is read and written whole. The second, for long ones, has numbers
-- of a fixed width in front; its entries are the bytes after the first `first`
-- up to `last`, the whole is `size` long. Of it are read the numbers and what
-- has come to an end; what is new is written over the room behind the entries,
-- and the numbers last: until then nothing has happened. It is written whole
-- when the room is used up, or the entries that are left are less than half.

local longLog = 256 -- bytes of entries, up to which the first form is cheaper
local logNumbers, logNumbersSize = '<ddddI4I4I4', 44

-- formatLog returns a log as it is written. The room is at least a byte for
-- 128, so that writing it whole is rare, and else what Redis would leave unused
-- of the memory it gives a string: that comes in steps of an eighth to a quarter,
-- with 6 bytes for Redis itself.
local function formatLog(head, base, at, units, total, entries)
  if #entries <= longLog then
    return head .. string.format('%.0f:%.0f:%.0f:%.0f:', base, at, units, total) .. entries
  end
  local first = #head + 1 + logNumbersSize
  local last = first + #entries
  local least, step = last + last / 128 + 6, 128
  while least > 8 * step do step = 2 * step end
  local size = math.ceil(least / step) * step - 6
  return head .. '*' .. struct.pack(logNumbers, base, at, units, total, first, last, size) ..
    entries .. string.rep('\0', size - last)
end

-- newQuickLog returns what decides on a log by itself, as decide.lua answers, or
-- with nothing when the general path has to: while reservations are open, or for a
-- clock that was stepped back by more than a period.
local function newQuickLog()
  local call, byte, sub, floor = redis.call, string.byte, string.sub, math.floor

  -- parse reads what stands in front of the entries, and returns whether it is
  -- known here. L.read is what was read, which follows the first L.from bytes;
  -- L.more is how much is read next.
  local function parse(L, key, head)
    local read = call('GETRANGE', key, '0', '383')
    L.read = read
    if read == '' then return true end
    if sub(read, 1, #head) ~= head then return false end
    if byte(read, #head + 1) == 42 then
      L.base, L.at, L.units, L.total, L.first, L.last, L.size = struct.unpack(logNumbers, read, #head + 2)
    else
      local base, at, units, total, first = string.match(read, '^(%d+):(%d+):(%d+):(%d+):()', #head + 1)
      if not first or #read == 384 then return false end
      L.base, L.at, L.units, L.total = tonumber(base), tonumber(at), tonumber(units), tonumber(total)
      L.first, L.last = first - 1, #read
    end
    if L.first == L.last then L.base = L.at end
    return true
  end

  -- entry returns the gap and the units of the entry after the first i bytes,
  -- and where it ends.
  local function entry(L, i)
    local bytes, from = L.bytes, L.start
    if i + entrySize > from + #bytes and from + #bytes < L.last then
      local read, at = L.read, L.from
      if i + entrySize > at + #read and at + #read < L.last then
        at, read = i, call('GETRANGE', L.key, i, math.min(i + L.more, L.last) - 1)
        L.from, L.read, L.more = at, read, 2 * L.more
      end
      from, bytes = i, { byte(read, i - at + 1, math.min(i + entryBytes, L.last) - at) }
      L.start, L.bytes = from, bytes
    end
    local gap, n, last = entryAfter(bytes, i - from + 1)
    return gap, n, from + last
  end

  -- forget drops what has come to an end.
  local function forget(L, before)
    if L.at <= before then
      L.units, L.total, L.first, L.last, L.size = 0, 0, 0, 0, 0
    end
    while L.total > 0 and L.base <= before do
      local gap, n, after = entry(L, L.first)
      L.base, L.total, L.first = L.base + gap, L.total - n, after
    end
  end

  -- decisive returns when the entry was with which, counted from the oldest,
  -- enough has come to an end.
  local function decisive(L, enough)
    local at, i = L.base, L.first
    while enough > 1 and i < L.last do
      local gap, n, after = entry(L, i)
      if n >= enough then break end
      at, enough, i = at + gap, enough - n, after
    end
    return at
  end

  -- save writes the log, with an entry that is new behind the others.
  local function save(L, added, ms)
    local key, head, first, last = L.key, L.head, L.first, L.last
    if L.size > 0 and last + #added <= L.size and 2 * first <= L.size then
      if added ~= '' then call('SETRANGE', key, last, added) end
      if ms then call('PEXPIRE', key, ms) end
      call('SETRANGE', key, #head + 1, struct.pack(logNumbers, L.base, L.at, L.units, L.total, first, last + #added, L.size))
      return
    end
    local entries
    if L.size > 0 then
      entries = call('GETRANGE', key, first, last - 1)
    else
      entries = sub(L.read, first + 1, last)
    end
    local state = formatLog(head, L.base, L.at, L.units, L.total, entries .. added)
    if ms then
      call('SET', key, state, 'PX', ms)
    else
      call('SET', key, state)
    end
  end

  -- charge adds to the newest entry, or makes one that is newer.
  local function charge(L, t, cost)
    local added = ''
    if L.total == 0 then
      L.at = t
    elseif t > L.at then
      added = packEntry(t - L.at, L.units)
      L.at, L.units = t, 0
    end
    L.units, L.total = L.units + cost, L.total + cost
    return added
  end

  -- at is where the arguments begin: t or p, cost, weight, head, period, count,
  -- flags. The time is the server's unless now is given.
  return function(key, at, t, now)
    local period, count, cost = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), ARGV[at + 1] * ARGV[at + 2]
    local L = {
      key = key, head = ARGV[at + 3], base = 0, at = 0, units = 0, total = 0, first = 0, last = 0,
      size = 0, from = 0, read = '', more = 64, start = 0, bytes = {},
    }
    if not parse(L, key, L.head) or L.at > t + period then return end
    forget(L, t - period)

    local allowed, retry, reset = cost == 0 or L.total + cost <= count, 0, 0
    if not allowed then
      if isOpen(key) then return end
      retry = -1
      if cost <= count then retry = decisive(L, L.total + cost - count) + period - t end
    elseif cost > 0 and ARGV[at] == 't' then
      local added = charge(L, t, cost)
      save(L, added, not now and floor((L.at + period - t + 1999) / 1000))
    end
    if L.total > 0 then reset = L.at + period - t end
    return { tonumber(ARGV[at + 1]), allowed and 1 or 0, math.max(count - L.total, 0), reset, retry, 0, 0, 0 }
  end
end

-- isQuickLog reports whether arguments are of a request for one log that does
-- not count what it denies.
local function isQuickLog(at, n)
  return n == 1 and (ARGV[at] == 't' or ARGV[at] == 'p') and string.byte(ARGV[at + 3], 2) == 108 and ARGV[at + 6] == ''
end

if isQuickLog(1, #KEYS) then
  local t = tonumber(ARGV[8])
  if not t then
    local time = redis.call('TIME')
    t = time[1] * 1000000 + time[2]
  end
  local out = newQuickLog()(KEYS[1], 1, t, ARGV[8])
  if out then
    out[#out + 1] = overflowed
    return out
  end
end
