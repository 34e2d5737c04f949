-- Calls for keys of several slots of a cluster that are on one node. A server
-- wants the keys that a call declares to be in one slot; those that it only names
-- may be in any that the node serves, else what reads them fails, before anything
-- has been written.
--
-- KEYS: the first. ARGV: X, how many more keys, these; then those of the call.

local KEYS, ARGV = KEYS, ARGV

if ARGV[1] == 'X' then
  local keys, args, n = { KEYS[1] }, {}, tonumber(ARGV[2])
  for i = 1, n do keys[i + 1] = ARGV[i + 2] end
  for i = n + 3, #ARGV do args[i - n - 2] = ARGV[i] end
  KEYS, ARGV = keys, args
end
