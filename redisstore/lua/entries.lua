-- How the log and the parts pack an entry: its units, if they are not 1, then how
-- far the next entry is after it. A number is seven bits a byte, the least first,
-- six in its last byte, which alone is below 128 and whose bit 6 says that the
-- number is of units. So entries can be read from either end.
--
-- Bytes are read into a table, many at once: one by one that would be the dearest
-- part of it.

local entrySize = 20  -- bytes, the most that one takes
local entryBytes = 512 -- how many are read at once

-- entryAfter returns the gap and the units of the entry that begins at c[i], and
-- where it ends.
local function entryAfter(c, i)
  local last, units, v = i, 1, nil
  while true do
    while c[last] >= 128 do last = last + 1 end
    v = c[last] % 64
    for k = last - 1, i, -1 do v = v * 128 + c[k] - 128 end
    if c[last] < 64 then return v, units, last end
    units, i, last = v, last + 1, last + 1
  end
end

-- entryBefore returns the gap and the units of the entry that ends at c[i], and
-- where the one before it ends. At the first byte c[0] is nil.
local function entryBefore(c, i)
  local gap, units, k = c[i], 1, i - 1
  while k > 0 and c[k] >= 128 do
    gap, k = gap * 128 + c[k] - 128, k - 1
  end
  if k > 0 and c[k] >= 64 then
    units, k = c[k] - 64, k - 1
    while k > 0 and c[k] >= 128 do
      units, k = units * 128 + c[k] - 128, k - 1
    end
  end
  return gap, units, k
end

-- packNumber appends a number to the n bytes that there are, the last with a mark.
local function packNumber(bytes, n, v, mark)
  while v >= 64 do
    n = n + 1
    bytes[n] = v % 128 + 128
    v = (v - v % 128) / 128
  end
  bytes[n + 1] = v + mark
  return n + 1
end

-- packEntry returns an entry as bytes.
local function packEntry(gap, units)
  local bytes, n = {}, 0
  if units ~= 1 then n = packNumber(bytes, 0, units, 64) end
  packNumber(bytes, n, gap, 0)
  return string.char(unpack(bytes))
end
