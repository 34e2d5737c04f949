-- Calls for keys of several slots of a cluster that are on one node. A server requires
-- that the declared keys of a call are in one slot. Keys that are passed as arguments may
-- be in any slot that the node serves; if one is not, reading it fails, before anything
-- was written.
--
-- KEYS: the first. ARGV: X, how many more keys, those keys; then the call's arguments.

local KEYS, ARGV = KEYS, ARGV

if ARGV[1] == 'X' then
  local keys, args, n = { KEYS[1] }, {}, tonumber(ARGV[2])
  for i = 1, n do keys[i + 1] = ARGV[i + 2] end
  for i = n + 3, #ARGV do args[i - n - 2] = ARGV[i] end
  KEYS, ARGV = keys, args
end
