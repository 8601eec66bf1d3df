-- Chooses a node of a cell and takes a slot on it. The hot path: arranged for speed, see docs/redis-data-model.md.
--
-- KEYS     hot cold fresh nodes index leases due
-- ARGV     1 now, 2 job,
--          3 packed: attempt u32, ack_lease_ms double, random u32, policy u8 (0 balanced, 1 sample, 2 least_loaded,
--          3 random), sample size u8, keep_last u8, pinned slot u8 (255 for none), its epoch double, strict u8,
--          which of the sets below counts together with the one after it u8,
--          4 excluded slots as 16 bytes or '', 5… sets a node must be in
-- RETURNS  a text that begins with a letter, or {that text, expired} if leases were ended on the way: expired is
--          job attempt slot phase, again and again.
--          g (granted): slot u8, fence double, used u16, max u16, free u32, 'epoch name via'
--          d (duplicate): slot u8, fence double, 'epoch name via'
--          s (stale): attempt u32; f (full): capable u32, free u32; n (none);
--          p (pin lost): reason, blank, capabilities
-- WHY ATOMIC  between choosing a node and taking its slot nobody else may take it
--
-- Functions are made only where they are needed: making one takes as long as a command.
local hot, cold, fresh, nodes, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, due = KEYS[6], KEYS[7]
local job, excluded = ARGV[2], ARGV[4]
local attempt, ack_lease_ms, random, policy, sample, keep_last, pinned, pin_epoch, strict, either =
  unpack_from('<I4dI4BBBBdBB', ARGV[3])
local WORDS, SLOT_NONE = '<I4I4I4I4', 255
local REAP_BATCH, FIRST_SET = 16, 5
local BAND, KEEP_LAST_FROM = 15, 5
-- A place that is counted in units of this leaves room for the number beside it.
local PLACE = 4294967296
local band, bor = bit.band, bit.bor

-- What is known of this job, and of all leases; whoever is over is ended first.
local expired = {}
local held, head = unpack(call('HMGET', leases, job, LEASES_HEAD))
local last_fence, none_ends_before = 0, 0
if head then last_fence, none_ends_before = unpack_from('<dd', head) end
if none_ends_before < now then
  reap(hot, leases, due, REAP_BATCH, expired)
  held, head = unpack(call('HMGET', leases, job, LEASES_HEAD))
  if head then last_fence, none_ends_before = unpack_from('<dd', head) end
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
  -- Who can do it: the intersection of the sets, as four words.
  local sets = call('HMGET', index, '+open', unpack(ARGV, FIRST_SET))
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

  -- Until when each slot's sign of life counts, unless all are fresh: mostly one number says that they are.
  local data, times = call('GET', hot) or '', nil
  if #data > HOT_HEAD and unpack_from('<d', data) < now then
    times = fresh_times(hot, fresh, index)
    if times then
      a, b, c, d = only_fresh(times, a, 0), only_fresh(times, b, 32), only_fresh(times, c, 64), only_fresh(times, d, 96)
    end
  end

  -- Of those, who takes jobs at present, and may get this one.
  local words = { 0, 0, 0, 0 }
  if sets[1] then
    local w, x, y, z = unpack_from(WORDS, sets[1])
    words = { band(a, w), band(b, x), band(c, y), band(d, z) }
    if excluded ~= '' then
      local without = { unpack_from(WORDS, excluded) }
      for at = 1, 4 do words[at] = band(words[at], bit.bnot(without[at])) end
    end
  end

  -- Chooses as the core does: the same whole numbers, the same order, so the same node.
  --
  -- The table of numbers is made once, by one call, and then reused in place: nodes that can be had move to its front,
  -- with their places beside their rooms. New tables would cost more than all the sums.
  local numbers, count, free, base = nil, 0, 0, 256
  if #data > HOT_HEAD then
    numbers = { unpack_from('<' .. string.rep('d', (#data - HOT_HEAD) / 8), data, HOT_HEAD + 1) }
  end
  for at_word = 1, 4 do
    local word, at = words[at_word], 64 * at_word - 63
    if word < 0 then word = word + PLACE end
    while word > 0 do
      local odd = word % 2
      if odd == 1 then
        local room = numbers[at + 1]
        local rest = room % FREE
        local flexibility = rest % 256
        if flexibility < base then base = flexibility end
        if room > rest then
          free = free + room - rest
          numbers[count + 1] = numbers[at]
          count = count + 2
          numbers[count] = room + (at - 1) * (PLACE / 2)
        end
      end
      word, at = (word - odd) / 2, at + 2
    end
  end
  free = free / FREE

  local slot
  if count > 0 then
    local luck, lowest, limit = random, NEVER, nil
    if policy == 0 then
      base = 100 - base
      for at = 1, count, 2 do
        local room = numbers[at + 1]
        local factor = base + room % 256
        local score = numbers[at] * factor
        -- Its last slot of several is kept for rarer pairs.
        if keep_last == 1 and room % PLACE < 2 * FREE and room % 512 < 256 and factor >= 100 + KEEP_LAST_FROM then
          score = NEVER
        end
        numbers[at] = score
        if score < lowest then lowest = score end
      end
      -- The largest score that is less than the band above the lowest.
      limit = lowest * (100 + BAND) - 1
      limit = (limit - limit % 100) / 100
    else
      count, luck = score_otherwise(numbers, count, luck, policy, sample, fresh)
      for at = 1, count, 2 do
        if numbers[at] < lowest then lowest = numbers[at] end
      end
      limit = lowest
    end
    if lowest < NEVER then
      local equals = 0
      for at = 1, count, 2 do
        if numbers[at] <= limit then equals = equals + 1 end
      end
      local nth = floor(luck * equals / PLACE)
      for at = 1, count, 2 do
        if numbers[at] <= limit then
          if nth == 0 then
            slot = floor(numbers[at + 1] / PLACE)
            break
          end
          nth = nth - 1
        end
      end
    end
  end

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
    local deadline, at = now + ack_lease_ms, HOT_HEAD + slot * HOT_BYTES
    local fence = math.max(last_fence + 1, now * 1000)
    local delay, room, used, max = unpack_from('<dd', data, at + 1)
    delay, room, used, max = counted(delay, room, 1)
    call('SETRANGE', hot, at, pack('<dd', delay, room))
    call('HSET', leases, job, pack(LEASE, slot, 0, attempt, fence),
      LEASES_HEAD, pack('<dd', fence, math.min(none_ends_before, deadline)))
    call('ZADD', due, text(deadline), job)
    outcome = 'g' .. pack('<BdI2I2I4', slot, fence, used, max, free - 1) .. call('HGET', nodes, slot)
    break
  end

  -- A slot that is held by a dead lease is not taken: clean up before saying no.
  local there = call('HGET', index, '+there')
  local capable = there and count_both(there, a, b, c, d) or 0
  local no_room = why == 'full' or (not why and capable > 0)
  if no_room and reap(hot, leases, due, REAP_BATCH, expired) > 0 then
    last_fence, none_ends_before = unpack_from('<dd', call('HGET', leases, LEASES_HEAD))
  elseif why then
    outcome = 'p' .. why .. ' ' .. (capabilities or '')
  elseif capable == 0 then
    outcome = 'n'
  else
    outcome = 'f' .. pack('<I4I4', capable, free)
  end
end
if #expired > 0 then return { outcome, expired } end
return outcome
