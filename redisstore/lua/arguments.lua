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

local virtual -- the time is an argument, and nothing expires

-- timeOfCall returns the time in µs: the argument that is left, or the server's.
local function timeOfCall()
  local t = argument()
  if t and t ~= '' then
    virtual = true
    return whole(t)
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
