-- Selects a node of a cell and takes a slot on it. Every job runs this script: it is written for
-- speed, see docs/redis-data-model.md.
--
-- KEYS     hot cold fresh nodes index leases due
-- ARGV     1 now, 2 job,
--          3 packed: attempt u32, ack_lease_ms double, random u32, policy u8 (balanced, SAMPLE,
--          LEAST_LOADED, random), sample size u8, keep_last u8, pinned slot u8 or SLOT_NONE, its
--          epoch double, strict u8, number u8 of the set that is joined with the one after it,
--          4 excluded slots as a set or '', 5… sets that a node must be in
-- RETURNS  a text that begins with a letter, or {that text, expired} if leases were ended first:
--          expired is job attempt slot phase, repeated.
--          g (granted): slot u8, fence double, used u16, max u16, free u32, weights of the free and
--          of all slots double double, weight of this slot u32, 'epoch name via'
--          d (duplicate): slot u8, fence double, 'epoch name via'
--          s (stale): attempt u32; n (none); p (pin lost): reason, space, capabilities
--          f (full): capable u32, free u32, weights of the free and of all slots double double
-- WHY ATOMIC  no other call may take the slot between the selection and the lease
--
-- The steps: sieve finds the nodes that can do the job, rank selects one of them, take writes the
-- lease. A set is four words of 32 bits, slot 0 in the lowest bit of the first.
local hot, cold, fresh, nodes, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, due = KEYS[6], KEYS[7]
local job, excluded = ARGV[2], ARGV[4]
local attempt, ack_lease_ms, random, policy, sample, keep_last, pinned, pin_epoch, strict, either =
  unpack_from('<I4dI4BBBBdBB', ARGV[3])
local band, bor = bit.band, bit.bor

-- The nodes that can do the job and are alive, as four words; then a table of the words of those
-- that may get it now. `sets` are '+open' and the required ones, `data` is `hot`.
local function sieve(sets, data)
  local a, b, c, d = -1, -1, -1, -1
  local i, last = 2, #sets
  while i <= last do
    local w, x, y, z = 0, 0, 0, 0
    if sets[i] then w, x, y, z = unpack_from(WORDS, sets[i]) end
    if i == either + 1 then
      i = i + 1
      if sets[i] then
        local p, q, r, s = unpack_from(WORDS, sets[i])
        w, x, y, z = bor(w, p), bor(x, q), bor(y, r), bor(z, s)
      end
    end
    a, b, c, d = band(a, w), band(b, x), band(c, y), band(d, z)
    i = i + 1
  end
  -- Mostly the first number of `hot` says that all nodes are alive.
  if #data > HOT_HEAD and unpack_from('<d', data) < now then
    local times = fresh_times(hot, fresh, index)
    if times then
      a, b = only_fresh(times, a, 0), only_fresh(times, b, 32)
      c, d = only_fresh(times, c, 64), only_fresh(times, d, 96)
    end
  end
  if not sets[1] then return a, b, c, d, { 0, 0, 0, 0 } end
  local w, x, y, z = unpack_from(WORDS, sets[1])
  local words = { band(a, w), band(b, x), band(c, y), band(d, z) }
  if excluded ~= '' then
    local without = { unpack_from(WORDS, excluded) }
    for at = 1, 4 do words[at] = band(words[at], bit.bnot(without[at])) end
  end
  return a, b, c, d, words
end

-- The slot that is selected, or nil; then the free slots of all candidates, their weight, and the
-- weight of all slots. Computes the same whole numbers in the same order as the core, so it selects
-- the same node.
--
-- `numbers` is created by one call and reused in place, three numbers for each candidate: its cost
-- (its maximum if the policy is not balanced), 100 + CONTENTION * used, and its code: slot *
-- CODE_SLOT + CODE_AT_LIMIT if it is at its limit + flexibility. Then the second becomes the score.
-- New tables would cost more than all the arithmetic.
local function rank(data, words)
  if #data <= HOT_HEAD then return nil, 0, 0, 0 end
  local format = '<' .. string.rep('d', (#data - HOT_HEAD) / 8)
  local numbers = { unpack_from(format, data, HOT_HEAD + 1) }
  local count, free, free_weight, all_weight, base, most = 0, 0, 0, 0, FLEXIBILITY_BELOW, 0
  for at_word = 1, 4 do
    local word, at = words[at_word], 96 * at_word - 95
    if word < 0 then word = word + WORD_BELOW end
    while word > 0 do
      local odd = word % 2
      if odd == 1 then
        local weight, room = numbers[at + 1], numbers[at + 2]
        local rest = room % FREE_UNIT
        local low = rest % LIMIT_UNIT
        local flexibility = low % FLEXIBILITY_BELOW
        if flexibility < base then base = flexibility end
        if flexibility > most then most = flexibility end
        local max = (low - flexibility) / MAX_UNIT
        all_weight = all_weight + max * weight
        if room > rest then
          local here, code = (room - rest) / FREE_UNIT, flexibility + (at - 1) / 3 * CODE_SLOT
          local used = max - here
          free = free + here
          if rest >= LIMIT_UNIT then free_weight = free_weight + here * weight end
          if used * LIMIT_UNIT >= rest - low then code = code + CODE_AT_LIMIT end
          numbers[count + 1] = policy == BALANCED and numbers[at] or max
          numbers[count + 2] = 100 + CONTENTION * used
          count = count + 3
          numbers[count] = code
        end
      end
      word, at = (word - odd) / 2, at + 3
    end
  end
  if count == 0 then return nil, free, free_weight, all_weight end

  local chance, lowest, equals = random, NEVER, 0
  if policy == BALANCED then
    local spared_from, kept_from = FLEXIBILITY_BELOW, FLEXIBILITY_BELOW
    if most >= base + FLEXIBLE_FROM then
      spared_from, kept_from = reserved_from(data, words, base + FLEXIBLE_FROM, most)
    end
    if keep_last == 0 then kept_from = FLEXIBILITY_BELOW end
    score_balanced(numbers, count, 100 - base, spared_from, kept_from)
  else
    count, chance = score_otherwise(numbers, count, chance, policy, sample)
  end
  for at = 2, count, 3 do
    local score = numbers[at]
    if score < lowest then lowest, equals = score, 1
    elseif score == lowest then equals = equals + 1 end
  end
  if lowest == NEVER then return nil, free, free_weight, all_weight end
  local nth = floor(chance * equals / WORD_BELOW)
  for at = 2, count, 3 do
    if numbers[at] == lowest then
      if nth == 0 then
        return floor(numbers[at + 1] / CODE_SLOT), free, free_weight, all_weight
      end
      nth = nth - 1
    end
  end
end

-- Writes the lease and returns the reply.
local function take(slot, data, free, free_weight, all_weight, last_fence, none_expires_before)
  local deadline, at = now + ack_lease_ms, HOT_HEAD + slot * HOT_BYTES
  local fence = math.max(last_fence + 1, now * 1000)
  local weight, room = unpack_from('<dd', data, at + HOT_WEIGHT + 1)
  -- The slots of a node that fails everything do not count.
  if room % FREE_UNIT >= LIMIT_UNIT then free_weight = free_weight - weight end
  local used, max
  room, used, max = with_count(room, 1)
  call('SETRANGE', hot, at + HOT_ROOM, pack('<d', room))
  call('HSET', leases, job, pack(LEASE, slot, PHASE_RESERVED, attempt, fence),
    LEASES_HEAD, pack('<dd', fence, math.min(none_expires_before, deadline)))
  call('ZADD', due, text(deadline), job)
  return 'g' .. pack('<BdI2I2I4ddI4', slot, fence, used, max, free - 1, free_weight, all_weight,
    weight) .. call('HGET', nodes, slot)
end

-- This job's lease, and the head of all leases. Expired leases are ended first.
local expired = {}
local held, head = unpack(call('HMGET', leases, job, LEASES_HEAD))
local last_fence, none_expires_before = 0, 0
if head then last_fence, none_expires_before = unpack_from('<dd', head) end
if none_expires_before < now then
  reap(hot, leases, due, REAP_BATCH, expired)
  held, head = unpack(call('HMGET', leases, job, LEASES_HEAD))
  if head then last_fence, none_expires_before = unpack_from('<dd', head) end
end

local outcome
if held then
  local slot, _, held_attempt, held_fence = unpack_from(LEASE, held)
  if held_attempt == attempt then
    outcome = 'd' .. pack('<Bd', slot, held_fence) .. call('HGET', nodes, slot)
  elseif held_attempt > attempt then
    outcome = 's' .. pack('<I4', held_attempt)
  else
    end_lease(hot, leases, due, job, slot)
  end
end

while not outcome do
  local sets, data = call('HMGET', index, '+open', unpack(ARGV, 5)), call('GET', hot) or ''
  local a, b, c, d, words = sieve(sets, data)
  local slot, free, free_weight, all_weight = rank(data, words)
  local why, capabilities
  if pinned ~= SLOT_NONE then
    why, capabilities = refusal(hot, cold, fresh, nodes, pinned, pin_epoch, sets, either, excluded)
    if not why then
      slot = pinned
    elseif strict == 0 then
      why = nil
    else
      slot = nil
    end
  end
  if slot then
    outcome = take(slot, data, free, free_weight, all_weight, last_fence, none_expires_before)
    break
  end

  -- An expired lease must not make a cell full: end some, then try again.
  local there = call('HGET', index, '+there')
  local capable = there and count_both(there, a, b, c, d) or 0
  capable = capable + count_gone(index, fresh, a, b, c, d)
  local is_full = why == 'full' or (not why and capable > 0)
  if is_full and reap(hot, leases, due, REAP_BATCH, expired) > 0 then
    last_fence, none_expires_before = unpack_from('<dd', call('HGET', leases, LEASES_HEAD))
  elseif why then
    outcome = 'p' .. why .. ' ' .. (capabilities or '')
  elseif capable == 0 then
    outcome = 'n'
  else
    outcome = 'f' .. pack('<I4I4dd', capable, free, free_weight, all_weight)
  end
end
if #expired > 0 then return { outcome, expired } end
return outcome
