-- Chooses a node of a cell and takes a slot on it.
--
-- KEYS     hot cold nodes index leases due
-- ARGV     1 now, 2 job, 3 attempt, 4 ack_lease_ms, 5 random (32 bits),
--          6 policy (balanced sample least_loaded random), 7 sample size, 8 keep_last (0 1),
--          9 pinned slot or -1, 10 its epoch, 11 strict (0 1), 12 excluded slots as 16 bytes or '',
--          13 which of the sets below counts together with the one after it, 14… sets a node must be in
-- RETURNS  {outcome, …, expired}: 'granted' node slot epoch fence used max free, 'duplicate' node slot epoch fence,
--          'stale' attempt, 'full' capable free, 'none', 'pin' reason; expired is job attempt slot phase, again and again
-- WHY ATOMIC  between choosing a node and taking its slot nobody else may take it
local hot, cold, nodes, index, leases, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local job, attempt = ARGV[2], tonumber(ARGV[3])
local REAP_BATCH, FIRST_SET = 16, 14
local CONTENTION, BAND, KEEP_LAST_FROM = 15, 15, 5

local expired = {}
reap(hot, leases, due, REAP_BATCH, expired)

local held = call('HGET', leases, job)
if held then
  local slot, _, held_attempt, fence = unpack_from(LEASE, held)
  if held_attempt == attempt then
    local epoch = unpack_from('<d', record(cold, 0, COLD_BYTES, slot))
    return { 'duplicate', call('HGET', nodes, slot), slot, epoch, fence, expired }
  elseif held_attempt > attempt then
    return { 'stale', held_attempt, expired }
  end
  end_lease(hot, leases, due, job, slot)
end

local function bits_of(word, first, into)
  if word < 0 then word = word + 4294967296 end
  local n, slot = #into, first
  while word > 0 do
    local odd = word % 2
    if odd == 1 then
      n = n + 1
      into[n] = slot
    end
    word = (word - odd) / 2
    slot = slot + 1
  end
end

-- Who can do it: the intersection of the sets, as four words.
local sets = call('HMGET', index, unpack(ARGV, FIRST_SET))
local either = tonumber(ARGV[13])
local band = bit.band
local a, b, c, d = -1, -1, -1, -1
do
  local i = 1
  while i <= #sets do
    local w, x, y, z = 0, 0, 0, 0
    if sets[i] then w, x, y, z = unpack_from('<I4I4I4I4', sets[i]) end
    if i == either then
      i = i + 1
      if sets[i] then
        local p, q, r, s = unpack_from('<I4I4I4I4', sets[i])
        w, x, y, z = bit.bor(w, p), bit.bor(x, q), bit.bor(y, r), bit.bor(z, s)
      end
    end
    a, b, c, d = band(a, w), band(b, x), band(c, y), band(d, z)
    i = i + 1
  end
end
local able = {}
bits_of(a, 0, able)
bits_of(b, 32, able)
bits_of(c, 64, able)
bits_of(d, 96, able)

local excluded
if #ARGV[12] == 16 then
  excluded = {}
  local list = {}
  local w, x, y, z = unpack_from('<I4I4I4I4', ARGV[12])
  bits_of(w, 0, list)
  bits_of(x, 32, list)
  bits_of(y, 64, list)
  bits_of(z, 96, list)
  for i = 1, #list do excluded[list[i]] = true end
end

local function scale(random, n)
  return floor(random * n / 4294967296)
end

-- k random members of the list in their order, and a random number for what comes after: Park and Miller's
-- generator, whose numbers are exact here.
local function sample(from, k, random)
  local lot = random % 2147483646 + 1
  local count = #from
  if k > count then k = count end
  local dealt = {}
  for i = 1, count do dealt[i] = from[i] end
  for i = 1, k do
    lot = lot * 48271 % 2147483647
    local j = i + scale(lot * 2, count - i + 1)
    dealt[i], dealt[j] = dealt[j], dealt[i]
  end
  for i = k + 1, count do dealt[i] = nil end
  table.sort(dealt)
  return dealt, lot * 48271 % 2147483647 * 2
end

-- Why the pinned node cannot be had: the number of the first set it is not in, or a word.
local function refusal(rec, slot)
  local at = slot * 6
  local max = rec[at + 3]
  if not max or max == 0 then return 'no_node' end
  local epoch = unpack_from('<d', record(cold, 0, COLD_BYTES, slot))
  if epoch ~= tonumber(ARGV[10]) then return 'superseded' end
  local byte_at, bit_at = floor(slot / 8) + 1, 2 ^ (slot % 8)
  local function within(set)
    return set and floor(string.byte(set, byte_at) / bit_at) % 2 == 1
  end
  for i = 1, #sets do
    local listed = within(sets[i])
    if i == either then listed = listed or within(sets[i + 1]) end
    if not listed and i ~= either + 1 then return i end
  end
  local gate = rec[at + 5]
  if gate >= OFFLINE_GATE then return 'offline' end
  if rec[at + 6] < now then return 'stale' end
  local state = floor(gate / 8)
  if state ~= 0 then return state == 1 and 'registering' or state == 2 and 'degraded' or 'draining' end
  if excluded and excluded[slot] then return 'excluded' end
  if gate % 2 == 1 then return 'cpu' end
  if floor(gate / 2) % 2 == 1 then return 'gpu' end
  if gate >= 4 then return 'memory' end
  if rec[at + 2] >= max then return 'full' end
end

-- Chooses as the core does: the same whole numbers, the same order, so the same node.
local function choose(rec)
  local capable, free, base, count = 0, 0, 255, 0
  local open = {}
  for i = 1, #able do
    local slot = able[i]
    local at = slot * 6
    local gate = rec[at + 5]
    if gate < OFFLINE_GATE and rec[at + 6] >= now then
      capable = capable + 1
      if gate == 0 and not (excluded and excluded[slot]) then
        local flexibility, room = rec[at + 4], rec[at + 3] - rec[at + 2]
        if flexibility < base then base = flexibility end
        if room > 0 then
          free = free + room
          count = count + 1
          open[count] = slot
        end
      end
    end
  end
  if count == 0 then return nil, capable, free end

  local policy, random = ARGV[6], tonumber(ARGV[5])
  local candidates, scores, lowest, band_percent = open, {}, math.huge, 0
  if policy == 'balanced' then
    local keep = ARGV[8] == '1'
    candidates, band_percent, count = {}, BAND, 0
    for i = 1, #open do
      local at = open[i] * 6
      local used, max, extra = rec[at + 2], rec[at + 3], rec[at + 4] - base
      if not (keep and max > 1 and used + 1 >= max and extra >= KEEP_LAST_FROM) then
        local score = rec[at + 1] * (100 + CONTENTION * used) * (100 + extra)
        count = count + 1
        candidates[count], scores[count] = open[i], score
        if score < lowest then lowest = score end
      end
    end
  else
    if policy == 'sample' then candidates, random = sample(open, tonumber(ARGV[7]), random) end
    for i = 1, #candidates do
      local at = candidates[i] * 6
      local score = 0
      if policy == 'sample' then
        local latest = 34359738367
        score = rec[at + 2] * (latest + 1) + latest - math.min(rec[at + 6] - now, latest)
      elseif policy == 'least_loaded' then
        score = floor(rec[at + 2] * 10000000 / rec[at + 3])
      end
      scores[i] = score
      if score < lowest then lowest = score end
    end
  end
  local limit = lowest * (100 + band_percent)
  if band_percent > 0 then limit = limit - 1 end
  local best, equals = {}, 0
  for i = 1, #candidates do
    if scores[i] * 100 <= limit then
      equals = equals + 1
      best[equals] = candidates[i]
    end
  end
  return best[scale(random, equals) + 1], capable, free
end

while true do
  local data = call('GET', hot) or ''
  local rec, last_fence = {}, 0
  if #data >= HOT_HEAD then
    last_fence = unpack_from('<d', data)
    local count = (#data - HOT_HEAD) / HOT_BYTES
    rec = { unpack_from('<' .. string.rep('I4I2I2BBd', count), data, HOT_HEAD + 1) }
  end
  local slot, capable, free = choose(rec)
  local why
  local pinned = tonumber(ARGV[9])
  if pinned >= 0 then
    why = refusal(rec, pinned)
    if not why then
      slot = pinned
    elseif ARGV[11] == '0' then
      why = nil
    else
      slot = nil
    end
  end
  if slot then
    local at = slot * 6
    local fence = math.max(last_fence + 1, now * 1000)
    local used, max = rec[at + 2] + 1, rec[at + 3]
    call('SETRANGE', hot, 0, pack('<d', fence))
    call('SETRANGE', hot, HOT_HEAD + slot * HOT_BYTES + 4, pack('<I2', used))
    call('HSET', leases, job, pack(LEASE, slot, 0, attempt, fence))
    call('ZADD', due, now + tonumber(ARGV[4]), job)
    local epoch = unpack_from('<d', record(cold, 0, COLD_BYTES, slot))
    return { 'granted', call('HGET', nodes, slot), slot, epoch, fence, used, max, free - 1, expired }
  end
  -- A slot that is held by a dead lease is not taken: clean up before saying no.
  local no_room = why == 'full' or (not why and capable > 0)
  if not no_room or reap(hot, leases, due, REAP_BATCH, expired) == 0 then
    if why then return { 'pin', tostring(why), expired } end
    if capable == 0 then return { 'none', expired } end
    return { 'full', capable, free, expired }
  end
end
