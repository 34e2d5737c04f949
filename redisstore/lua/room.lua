-- How much memory the server uses and may use; nothing if the user may not ask. Without
-- a maxmemory it may use half of the machine's memory.
--
-- KEYS: any key of the node. ARGV: I. Answer: used and most, in bytes.

if ARGV[1] == 'I' then
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then return end
  local used, most = string.match(info, 'used_memory:(%d+)'), string.match(info, 'maxmemory:(%d+)')
  if most == '0' then
    most = string.match(info, 'total_system_memory:(%d+)')
    most = most and string.format('%d', math.floor(most / 2))
  end
  if used and most then return { used, most } end
  return
end
