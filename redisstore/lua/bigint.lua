-- Whole numbers of any size, never below zero: a number where it is below 2^53,
-- and so exact, else limbs of seven decimal digits, the least first. Nearly all
-- are numbers; limbs come up with counts, products and clocks near 2^63, and
-- what they need is made when the first does.

local EXACT = 9007199254740992
local floor, format = math.floor, string.format
local add, sub, mul, quo, less, whole

local made
local function limbs()
  if made then return made end
  made = {}
  local BASE = 10000000.0

  -- norm drops leading zeros, and makes a number of what one can hold.
  local function norm(l)
    local n = #l
    while n > 0 and l[n] == 0 do
      l[n] = nil
      n = n - 1
    end
    if n <= 3 then
      local v = ((l[3] or 0) * BASE + (l[2] or 0)) * BASE + (l[1] or 0)
      if v < EXACT then return v end
    end
    return l
  end

  local function split(a)
    if type(a) == 'table' then return a end
    local l = {}
    while a > 0 do
      l[#l + 1] = a % BASE
      a = floor(a / BASE)
    end
    return l
  end

  local function numbers(a, b) return type(a) == 'number' and type(b) == 'number' end

  function made.compare(a, b)
    if numbers(a, b) then return a - b end
    a, b = split(a), split(b)
    if #a ~= #b then return #a - #b end
    for i = #a, 1, -1 do
      if a[i] ~= b[i] then return a[i] - b[i] end
    end
    return 0
  end

  function made.add(a, b)
    if numbers(a, b) and a + b < EXACT then return a + b end
    a, b = split(a), split(b)
    local sum, carry = {}, 0
    for i = 1, math.max(#a, #b) + 1 do
      local v = (a[i] or 0) + (b[i] or 0) + carry
      sum[i] = v % BASE
      carry = floor(v / BASE)
    end
    return norm(sum)
  end

  function made.sub(a, b)
    if made.compare(a, b) <= 0 then return 0 end
    if numbers(a, b) then return a - b end
    a, b = split(a), split(b)
    local rest, borrow = {}, 0
    for i = 1, #a do
      local v = a[i] - (b[i] or 0) - borrow
      borrow = 0
      if v < 0 then v, borrow = v + BASE, 1 end
      rest[i] = v
    end
    return norm(rest)
  end

  function made.mul(a, b)
    if numbers(a, b) and a * 1.0 * b < EXACT then return a * b end
    a, b = split(a), split(b)
    local product = {}
    for i = 1, #a + #b do product[i] = 0 end
    for i = 1, #a do
      local carry = 0
      for j = 1, #b do
        local v = product[i + j - 1] + a[i] * b[j] + carry
        product[i + j - 1] = v % BASE
        carry = floor(v / BASE)
      end
      product[i + #b] = carry
    end
    return norm(product)
  end

  -- nearly returns a whole number as a double, off by less than one in 2^50.
  local function nearly(a)
    if type(a) == 'number' then return a end
    local v = 0.0
    for i = #a, 1, -1 do v = v * BASE + a[i] end
    return v
  end

  -- Each digit of a quotient is estimated, and right or off by one.
  function made.quo(a, b)
    if numbers(a, b) then
      local q = floor(a / b)
      return q, a - q * b
    end
    a = split(a)
    local q, rest = {}, 0
    for i = #a, 1, -1 do
      rest = add(mul(rest, BASE), a[i])
      local digit = floor(nearly(rest) / nearly(b))
      local taken = mul(digit, b)
      if less(rest, taken) then
        digit, taken = digit - 1, sub(taken, b)
      end
      rest = sub(rest, taken)
      if not less(rest, b) then
        digit, rest = digit + 1, sub(rest, b)
      end
      q[i] = digit
    end
    return norm(q), rest
  end

  function made.text(a)
    if type(a) == 'number' then return format('%.0f', a) end
    local digits = { format('%d', a[#a]) }
    for i = #a - 1, 1, -1 do digits[#digits + 1] = format('%07d', a[i]) end
    return table.concat(digits)
  end

  function made.whole(s)
    local l = {}
    for last = #s, 1, -7 do
      l[#l + 1] = tonumber(string.sub(s, math.max(last - 6, 1), last))
    end
    return norm(l)
  end

  made.int64 = made.whole('9223372036854775807')
  return made
end

-- As long as no limbs are made, all are numbers, and the way is short.

less = function(a, b)
  if not made then return a < b end
  return made.compare(a, b) < 0
end

local function equal(a, b)
  if not made then return a == b end
  return made.compare(a, b) == 0
end

local function least(a, b)
  if less(b, a) then return b end
  return a
end

local function most(a, b)
  if less(a, b) then return b end
  return a
end

add = function(a, b)
  if not made then
    local sum = a + b
    if sum < EXACT then return sum end
  end
  return limbs().add(a, b)
end

-- sub returns a − b, or 0 where b is larger.
sub = function(a, b)
  if not made then
    if a > b then return a - b end
    return 0
  end
  return made.sub(a, b)
end

mul = function(a, b)
  if not made then
    local product = a * 1.0 * b -- which whole numbers of Lua 5.4 would let wrap around
    if product < EXACT then return product end
  end
  return limbs().mul(a, b)
end

-- quo returns ⌊a/b⌋ and the remainder. A quotient of doubles below 2^53 is
-- never rounded up to a whole number.
quo = function(a, b)
  if not made then
    local q = floor(a / b)
    return q, a - q * b
  end
  return made.quo(a, b)
end

-- ceil returns ⌈a/b⌉.
local function ceil(a, b)
  local q, rest = quo(a, b)
  if rest ~= 0 then return add(q, 1) end
  return q
end

-- text returns a whole number in decimal digits. (tostring and .. keep 14.)
local function text(a)
  if not made then return format('%.0f', a) end
  return made.text(a)
end

-- whole reads what text wrote.
whole = function(s)
  local v = tonumber(s)
  if v < EXACT then return v end
  return limbs().whole(s)
end

-- atMost returns a, at most what an int64 holds.
local function atMost(a)
  if not made then return a end
  return least(a, made.int64)
end

-- integer returns what a reply can carry: a number, or else its digits.
local function integer(a)
  if not made or type(a) == 'number' then return a end
  return made.text(a)
end
