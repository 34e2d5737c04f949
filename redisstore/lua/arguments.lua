-- Reading ARGV, one after the other.

-- spanOf reads a period: in µs, or, where it is no whole number of these, in
-- ns, marked by an n; and how many of its ticks are in a µs.
local function spanOf(s)
  if string.sub(s, -1) == 'n' then return whole(string.sub(s, 1, -2)), 1000 end
  return whole(s), 1
end

local arguments = 0 -- of ARGV have been read

local function argument()
  arguments = arguments + 1
  return ARGV[arguments]
end
