-- Chooses a node of a cell and takes a slot on it. The hot path: arranged for speed, see docs/redis-data-model.md.
--
-- KEYS     hot cold fresh nodes index leases due
-- ARGV     1 now, 2 job, 3 attempt, 4 ack_lease_ms, 5 random (32 bits),
--          6 policy (balanced sample least_loaded random), 7 sample size, 8 keep_last (0 1),
--          9 pinned slot or -1, 10 its epoch, 11 strict (0 1), 12 excluded slots as 16 bytes or '',
--          13 which of the sets below counts together with the one after it, 14… sets a node must be in
-- RETURNS  {outcome, …, expired}: 'granted' 'epoch name via' slot fence used max free, 'duplicate' 'epoch name via' slot fence,
--          'stale' attempt, 'full' capable free, 'none', 'pin' reason capabilities; expired is job attempt slot phase,
--          again and again
-- WHY ATOMIC  between choosing a node and taking its slot nobody else may take it
local hot, cold, fresh, nodes, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, due = KEYS[6], KEYS[7]
local job, attempt, pinned, policy = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[9]), ARGV[6]
local REAP_BATCH, FIRST_SET = 16, 14
local BAND, KEEP_LAST_FROM = 15, 5
-- A place that is counted in units of this leaves room for the number beside it.
local PLACE = 1048576

local expired = {}
local data = call('GET', hot) or ''
local fence, all_fresh_until, none_ends_before = 0, 0, 0
if #data >= HOT_HEAD then fence, all_fresh_until, none_ends_before = unpack_from('<ddd', data) end
if none_ends_before < now then
  reap(hot, cold, leases, due, REAP_BATCH, expired)
  data = call('GET', hot)
end

local held = call('HGET', leases, job)
if held then
  local slot, _, held_attempt, held_fence = unpack_from(LEASE, held)
  if held_attempt == attempt then
    return { 'duplicate', call('HGET', nodes, slot), slot, held_fence, expired }
  elseif held_attempt > attempt then
    return { 'stale', held_attempt, expired }
  end
  end_lease(hot, cold, leases, due, job, slot)
  data = call('GET', hot)
end

-- Who can do it: the intersection of the sets, as four words.
local band, bor = bit.band, bit.bor
local either = tonumber(ARGV[13])
local sets = call('HMGET', index, '+there', '+open', unpack(ARGV, FIRST_SET))
local a, b, c, d = 0, 0, 0, 0
if sets[1] then a, b, c, d = unpack_from('<I4I4I4I4', sets[1]) end
do
  local i, last = 3, #sets
  while i <= last do
    local w, x, y, z = 0, 0, 0, 0
    if sets[i] then w, x, y, z = unpack_from('<I4I4I4I4', sets[i]) end
    if i == either + 2 then
      i = i + 1
      if sets[i] then
        local p, q, r, s = unpack_from('<I4I4I4I4', sets[i])
        w, x, y, z = bor(w, p), bor(x, q), bor(y, r), bor(z, s)
      end
    end
    a, b, c, d = band(a, w), band(b, x), band(c, y), band(d, z)
    i = i + 1
  end
end

local function within(set, slot)
  return set and floor(string.byte(set, floor(slot / 8) + 1) / 2 ^ (slot % 8)) % 2 == 1
end

-- Leaves only the fresh ones. Mostly one number says that all are.
if all_fresh_until < now and #data > HOT_HEAD then
  local times = call('GET', fresh)
  times = { unpack_from('<' .. string.rep('d', #times / 8), times) }
  local least = NEVER
  for slot = 0, #times - 1 do
    if within(sets[1], slot) and times[slot + 1] < least then least = times[slot + 1] end
  end
  local function only_fresh(word, slot)
    if word < 0 then word = word + 4294967296 end
    local kept, bit_at = 0, 1
    while word > 0 do
      local odd = word % 2
      slot = slot + 1
      if odd == 1 and times[slot] >= now then kept = kept + bit_at end
      word, bit_at = (word - odd) / 2, bit_at * 2
    end
    return kept
  end
  if least >= now then
    call('SETRANGE', hot, 8, pack('<d', least))
    all_fresh_until = least
  else
    a, b, c, d = only_fresh(a, 0), only_fresh(b, 32), only_fresh(c, 64), only_fresh(d, 96)
  end
end
local able = { a, b, c, d }

-- Of those, who takes jobs at present, and may get this one.
do
  local w, x, y, z = 0, 0, 0, 0
  if sets[2] then w, x, y, z = unpack_from('<I4I4I4I4', sets[2]) end
  a, b, c, d = band(a, w), band(b, x), band(c, y), band(d, z)
  if #ARGV[12] == 16 then
    w, x, y, z = unpack_from('<I4I4I4I4', ARGV[12])
    local bnot = bit.bnot
    a, b, c, d = band(a, bnot(w)), band(b, bnot(x)), band(c, bnot(y)), band(d, bnot(z))
  end
end
local words = { a, b, c, d }

local function scale(random, n)
  return floor(random * n / 4294967296)
end

-- Why the pinned node cannot be had: the number of the first set it is not in, or a word; and its capabilities.
local function refusal(slot)
  local record = cold_record(cold, slot)
  if not record then return 'no_node' end
  local epoch, _, _, _, _, _, used, max, _, gate, _, _, _, present = unpack_from(COLD, record)
  if present == 0 then return 'no_node' end
  if epoch ~= tonumber(ARGV[10]) then return 'superseded' end
  for i = 1, #sets - 2 do
    local listed = within(sets[i + 2], slot)
    if i == either then listed = listed or within(sets[i + 3], slot) end
    if not listed and i ~= either + 1 then return i, call('HGET', nodes, slot .. 'c') end
  end
  local state = floor(gate / 8)
  if state == OFFLINE then return 'offline' end
  if unpack_from('<d', call('GETRANGE', fresh, slot * 8, slot * 8 + 7)) < now then return 'stale' end
  if state ~= 0 then return state == 1 and 'registering' or state == 2 and 'degraded' or 'draining' end
  if #ARGV[12] == 16 and within(ARGV[12], slot) then return 'excluded' end
  if gate % 2 == 1 then return 'cpu' end
  if floor(gate / 2) % 2 == 1 then return 'gpu' end
  if gate >= 4 then return 'memory' end
  if used >= max then return 'full' end
end

-- The rarer policies put their scores where the delays were. A sample leaves only its members: k random ones, dealt by
-- Park and Miller's generator, whose numbers are exact here. Gives how many are left, and the luck for what follows.
local function score_otherwise(numbers, n, random)
  local records = call('GET', cold)
  if policy == 'sample' then
    local k, lot, dealt = math.min(tonumber(ARGV[7]), n), random % 2147483646 + 1, {}
    for i = 1, n do dealt[i] = numbers[2 * i] end
    for i = 1, k do
      lot = lot * 48271 % 2147483647
      local j = i + scale(lot * 2, n - i + 1)
      dealt[i], dealt[j] = dealt[j], dealt[i]
    end
    for i = k + 1, n do dealt[i] = nil end
    -- Places are in the upper digits, so this sorts by place.
    table.sort(dealt)
    for i = 1, k do numbers[2 * i] = dealt[i] end
    n, random = k, lot * 48271 % 2147483647 * 2
  end
  for i = 1, n do
    local slot = floor(numbers[2 * i] / PLACE)
    local used, max = unpack_from('<I2I2', records, slot * COLD_BYTES + USED_AT + 1)
    local score = 0
    if policy == 'sample' then
      local latest = 34359738367
      local until_ms = unpack_from('<d', call('GETRANGE', fresh, slot * 8, slot * 8 + 7))
      score = used * (latest + 1) + latest - math.min(until_ms - now, latest)
    elseif policy == 'least_loaded' then
      score = floor(used * 10000000 / max)
    end
    numbers[2 * i - 1] = score
  end
  return n, random
end

-- Chooses as the core does: the same whole numbers, the same order, so the same node. Gives it and the free slots.
--
-- The table of numbers is made once, by one call, and then reused in place: nodes that can be had move to its front,
-- with their places beside their rooms. New tables would cost more than all the sums.
local function choose(numbers)
  local last, free, base = 0, 0, 256
  for w = 1, 4 do
    local word, at = words[w], 64 * w - 63
    if word < 0 then word = word + 4294967296 end
    while word > 0 do
      local odd = word % 2
      if odd == 1 then
        local room = numbers[at + 1]
        local rest = room % 512
        local flexibility = rest % 256
        if flexibility < base then base = flexibility end
        if room > rest then
          free = free + room - rest
          numbers[last + 1] = numbers[at]
          last = last + 2
          numbers[last] = room + (at - 1) * (PLACE / 2)
        end
      end
      word, at = (word - odd) / 2, at + 2
    end
  end
  free = free / 512
  if last == 0 then return nil, free end

  local random, lowest, limit = tonumber(ARGV[5]), NEVER, nil
  if policy == 'balanced' then
    local keep = ARGV[8] == '1'
    base = 100 - base
    for i = 1, last, 2 do
      local room = numbers[i + 1]
      local factor = base + room % 256
      local score = numbers[i] * factor
      -- Its last slot of several is kept for rarer pairs.
      if keep and room % PLACE < 1024 and room % 512 < 256 and factor >= 100 + KEEP_LAST_FROM then
        score = NEVER
      end
      numbers[i] = score
      if score < lowest then lowest = score end
    end
    if lowest == NEVER then return nil, free end
    -- The largest score that is less than the band above the lowest.
    limit = lowest * (100 + BAND) - 1
    limit = (limit - limit % 100) / 100
  else
    local n
    n, random = score_otherwise(numbers, last / 2, random)
    last = 2 * n
    for i = 1, last, 2 do
      if numbers[i] < lowest then lowest = numbers[i] end
    end
    limit = lowest
  end
  local equals = 0
  for i = 1, last, 2 do
    if numbers[i] <= limit then equals = equals + 1 end
  end
  local nth = scale(random, equals)
  for i = 1, last, 2 do
    if numbers[i] <= limit then
      if nth == 0 then return floor(numbers[i + 1] / PLACE), free end
      nth = nth - 1
    end
  end
  return nil, free
end

local function count(word)
  if word < 0 then word = word + 4294967296 end
  local n = 0
  while word > 0 do
    local odd = word % 2
    n, word = n + odd, (word - odd) / 2
  end
  return n
end

while true do
  local numbers = {}
  if #data > HOT_HEAD then
    numbers = { unpack_from('<' .. string.rep('d', (#data - HOT_HEAD) / 8), data, HOT_HEAD + 1) }
  end
  local slot, free = choose(numbers)
  local why, capabilities
  if pinned >= 0 then
    why, capabilities = refusal(pinned)
    if not why then
      slot = pinned
    elseif ARGV[11] == '0' then
      why = nil
    else
      slot = nil
    end
  end
  if slot then
    fence, none_ends_before = unpack_from('<dxxxxxxxxd', data)
    local deadline = now + tonumber(ARGV[4])
    fence, none_ends_before = math.max(fence + 1, now * 1000), math.min(none_ends_before, deadline)
    call('SETRANGE', hot, 0, pack('<ddd', fence, all_fresh_until, none_ends_before))
    local used, max = add_used(hot, cold, slot, 1)
    call('HSET', leases, job, pack(LEASE, slot, 0, attempt, fence))
    call('ZADD', due, deadline, job)
    return { 'granted', call('HGET', nodes, slot), slot, fence, used, max, free - 1, expired }
  end
  -- A slot that is held by a dead lease is not taken: clean up before saying no.
  local capable = count(able[1]) + count(able[2]) + count(able[3]) + count(able[4])
  local no_room = why == 'full' or (not why and capable > 0)
  if not no_room or reap(hot, cold, leases, due, REAP_BATCH, expired) == 0 then
    if why then return { 'pin', tostring(why), capabilities or '', expired } end
    if capable == 0 then return { 'none', expired } end
    return { 'full', capable, free, expired }
  end
  data = call('GET', hot)
end
