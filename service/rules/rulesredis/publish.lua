-- Publishes a version of the rules, all of it or nothing.
-- KEYS: head, the version's list and document, those of the version before.
-- ARGV: the head that the worker has read ('' for none), the new one, how many
-- blocks the list has, the seconds for which what is replaced may still be read,
-- the channel, blocks to be added.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 'succeeded'
end
if redis.call('EXISTS', KEYS[3]) == 0 then
  return 'the document is gone'
end
if redis.call('LLEN', KEYS[2]) ~= tonumber(ARGV[3]) then
  return 'blocks of the list are gone'
end
for i = 6, #ARGV do
  redis.call('RPUSH', KEYS[2], ARGV[i])
end
redis.call('PERSIST', KEYS[2])
redis.call('PERSIST', KEYS[3])
redis.call('SET', KEYS[1], ARGV[2])
for i = 4, 5 do
  if KEYS[i] ~= KEYS[i - 2] then
    redis.call('EXPIRE', KEYS[i], ARGV[4])
  end
end
redis.call('PUBLISH', ARGV[5], '')
return 'published'
