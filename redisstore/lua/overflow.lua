-- Calls of a store whose budget for new keys is spent. If the key of a state does not
-- exist, an overflow key takes its place, which new keys share. So existing keys, of any
-- store, are decided as ever, and no keys but overflow keys are created. A reservation
-- remembers which of its states were replaced.
--
-- KEYS: the keys of the call, then an overflow key for each state. ARGV: O, how many
-- states; then the arguments of the call. Answer: the answer of the call, as a list,
-- followed by a digit for each state: 1 if the overflow key was used, else 0.

local overflowed -- what the answer ends with; nil in other calls
local named      -- the states that such a call names

if ARGV[1] == 'O' then
  local keys, args, absent, n = {}, {}, {}, tonumber(ARGV[2])
  local own = #KEYS - n
  for i = 1, own do keys[i] = KEYS[i] end
  for i = 1, n do
    absent[i] = redis.call('GETRANGE', KEYS[i], '0', '0') == '' and 1 or 0
    if absent[i] == 1 then keys[i] = KEYS[own + i] end
  end
  for i = 3, #ARGV do args[i - 2] = ARGV[i] end
  KEYS, ARGV, overflowed, named = keys, args, table.concat(absent), KEYS
end
