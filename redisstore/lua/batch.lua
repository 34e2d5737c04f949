-- A batch of requests on the slow path. They are decided one after the other, at
-- one moment; an error in one does not affect the others.
--
-- KEYS: the keys of all requests. ARGV: M, now or nothing; for each request how many
-- keys and how many arguments it has, then its arguments, as in decide.lua with op t, x,
-- p, u or k, or those of a push or a lease. Answer: one for each request; false for a
-- request that was not decided, and must be sent alone.

if ARGV[1] == 'M' then
  argument()
  local t = timeOfCall()
  local takeLog
  local others = { L = lease }
  -- decide returns an answer, and the layers if they are still to be written. A
  -- log is written by then, as is a lease; what goes wrong there does so
  -- before it counts.
  local function decide(first, n, size)
    local other = others[ARGV[arguments + 1]]
    if other then
      local keys, args = {}, {}
      for i = 1, n do keys[i] = KEYS[first + i] end
      for i = 1, size do args[i] = ARGV[arguments + i] end
      return other(keys, args, t, virtual) or false
    end
    if isQuickLog(arguments + 1, n) then
      takeLog = takeLog or newQuickLog()
      local out = takeLog(KEYS[first + 1], arguments + 1, t, virtual)
      if out then return out end
    end
    local op = argument()
    if op == 'n' then -- written by then, too
      local out = push(first, t)
      return (type(out) == 'string' or not out.err) and out
    end
    local cost = whole(argument())
    local layers = readLayers(n)
    local wrong = loadAll(layers, first, t)
    if wrong then return type(wrong) == 'string' and wrong end
    local out = take(op, cost, layers, t)
    return out, layers
  end

  local answers, first = {}, 0
  repeat
    local n, size = tonumber(argument()), tonumber(argument())
    local following = arguments + size
    local fine, out, layers = pcall(decide, first, n, size)
    answers[#answers + 1] = fine and out
    if fine and layers then saveAll(layers) end
    arguments, first = following, first + n
  until first == #KEYS
  return answers
end
