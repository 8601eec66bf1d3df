-- The rarer parts of a selection; reserve.lua has the rest.

local function within(set, slot)
  return set and floor(string.byte(set, floor(slot / 8) + 1) / 2 ^ (slot % 8)) % 2 == 1
end

-- Until when each slot counts as alive; nil if every node that is there is alive, which is then
-- written into `hot`.
local function fresh_times(hot, fresh, index)
  local data, there, least = call('GET', fresh), call('HGET', index, '+there'), NEVER
  local times = { unpack_from('<' .. string.rep('d', #data / FRESH_BYTES), data) }
  for slot = 0, #times - 1 do
    if within(there, slot) and times[slot + 1] < least then least = times[slot + 1] end
  end
  if least < now then return times end
  call('SETRANGE', hot, 0, pack('<d', least))
end

-- Removes the slots that do not count as alive from a word whose first slot is this one.
local function only_fresh(times, word, slot)
  if word < 0 then word = word + WORD_BELOW end
  local alive, bit_at = 0, 1
  while word > 0 do
    local odd = word % 2
    slot = slot + 1
    if odd == 1 and (times[slot] or 0) >= now then alive = alive + bit_at end
    word, bit_at = (word - odd) / 2, bit_at * 2
  end
  return alive
end

-- The slots whose bits are set in the four words.
local function slots_of(words)
  local slots = {}
  for i = 1, 4 do
    local word, slot = words[i], 32 * i - 32
    if word < 0 then word = word + WORD_BELOW end
    while word > 0 do
      if word % 2 == 1 then slots[#slots + 1] = slot end
      word, slot = floor(word / 2), slot + 1
    end
  end
  return slots
end

-- How many slots are in the set and in the words.
local function count_both(set, ...)
  local words = { unpack_from(WORDS, set) }
  for i = 1, 4 do words[i] = bit.band(words[i], (select(i, ...))) end
  return #slots_of(words)
end

-- How many nodes in the words are signed off and still count as alive.
local function count_gone(index, fresh, a, b, c, d)
  local gone = call('HGET', index, '+gone')
  if not gone then return 0 end
  local data = call('GET', fresh)
  local times = { unpack_from('<' .. string.rep('d', #data / FRESH_BYTES), data) }
  return count_both(gone, only_fresh(times, a, 0), only_fresh(times, b, 32),
    only_fresh(times, c, 64), only_fresh(times, d, 96))
end

-- Why the pinned node cannot be used: the number of the first set that it is not in, or a word;
-- then its capabilities. sets[1] is '+open', so the first required set is sets[2].
local function refusal(hot, cold, fresh, nodes, slot, of_epoch, sets, either, excluded)
  local record = cold_record(cold, slot)
  if not record then return 'no_node' end
  local epoch, _, _, _, _, _, gate, _, _, _, present = unpack_from(COLD, record)
  if present == 0 then return 'no_node' end
  if epoch ~= of_epoch then return 'superseded' end
  for i = 1, #sets - 1 do
    local listed = within(sets[i + 1], slot)
    if i == either then listed = listed or within(sets[i + 2], slot) end
    if not listed and i ~= either + 1 then return i, call('HGET', nodes, slot .. 'c') end
  end
  local state = floor(gate / STATE_UNIT)
  if state == OFFLINE then return 'offline' end
  local at = slot * FRESH_BYTES
  local until_ms = unpack_from('<d', call('GETRANGE', fresh, at, at + FRESH_BYTES - 1))
  if until_ms < now then return 'stale' end
  if state == REGISTERING then return 'registering' end
  if state == DEGRADED then return 'degraded' end
  if state == DRAINING then return 'draining' end
  if excluded ~= '' and within(excluded, slot) then return 'excluded' end
  if gate % 2 == 1 then return 'cpu' end
  if floor(gate / 2) % 2 == 1 then return 'gpu' end
  if gate >= 4 then return 'memory' end
  local used, max = counts_of(hot, slot)
  if used >= max then return 'full' end
end

-- From which flexibility on nodes are spared for rarer pairs, and from which their slots are kept
-- for them. Counts the candidates, full ones too, by flexibility from `least` to `most`.
local function reserved_from(data, words, least, most)
  local format = '<' .. string.rep('d', (#data - HOT_HEAD) / 8)
  local numbers = { unpack_from(format, data, HOT_HEAD + 1) }
  local nodes_at, slots_at, free_at = {}, {}, {}
  for _, slot in ipairs(slots_of(words)) do
    local room = numbers[3 * slot + 3]
    local rest = room % FREE_UNIT
    local low = rest % LIMIT_UNIT
    local flexibility = low % FLEXIBILITY_BELOW
    if flexibility >= least then
      nodes_at[flexibility] = (nodes_at[flexibility] or 0) + 1
      slots_at[flexibility] = (slots_at[flexibility] or 0) + (low - flexibility) / MAX_UNIT
      free_at[flexibility] = (free_at[flexibility] or 0) + (room - rest) / FREE_UNIT
    end
  end
  local spared_from, kept_from = FLEXIBILITY_BELOW, FLEXIBILITY_BELOW
  local nodes, slots, free = 0, 0, 0
  for flexibility = most, least, -1 do
    if nodes_at[flexibility] then
      nodes, slots = nodes + nodes_at[flexibility], slots + slots_at[flexibility]
      free = free + free_at[flexibility]
      local spared, kept = SPARED_PERCENT * nodes + 100, KEPT_PERCENT * nodes + 100
      if 100 * free < spared then spared_from = flexibility end
      if 100 * free < kept and 100 * slots >= kept then kept_from = flexibility end
    end
  end
  return spared_from, kept_from
end

-- The scores of the balanced policy, in place of the second of the three numbers of a candidate
-- (see reserve.lua). A node that is no candidate gets NEVER. `base` is 100 less the least
-- flexibility. Nodes at their limits count only if there are no others, and among the rest those
-- that are spared: `class` is 0 for the best, 1 if spared, CODE_AT_LIMIT more at the limit.
local function score_balanced(numbers, count, base, spared_from, kept_from)
  local best, usual, best_class = NEVER, nil, NEVER
  for at = 1, count, 3 do
    local code = numbers[at + 2] % CODE_SLOT
    local flexibility = code % FLEXIBILITY_BELOW
    if flexibility >= kept_from then
      numbers[at + 1] = NEVER
    else
      local factor, class = (base + flexibility) * numbers[at + 1], code - flexibility
      numbers[at + 1] = factor
      if flexibility >= spared_from then class = class + 1 end
      if class < best_class then best, best_class = NEVER, class end
      local delay = numbers[at] * factor
      if class == best_class and delay < best then best, usual = delay, numbers[at] end
    end
  end
  if not usual then return end
  local high, low = usual * (100 + BAND), usual * 100
  for at = 1, count, 3 do
    local factor, cost = numbers[at + 1], numbers[at]
    local code = numbers[at + 2] % CODE_SLOT
    local flexibility = code % FLEXIBILITY_BELOW
    local class = code - flexibility
    if flexibility >= spared_from then class = class + 1 end
    if factor == NEVER or class > best_class then
      numbers[at + 1] = NEVER
    elseif cost * 100 <= high and low <= cost * (100 + BAND) then
      numbers[at + 1] = usual * factor
    else
      numbers[at + 1] = cost * factor
    end
  end
end

-- The policies other than balanced write their scores to the same place; the first number is the
-- node's maximum here. A sample keeps only its members: k random ones, drawn by Park and Miller's
-- generator, whose numbers are exact here. Returns how many numbers are left, and the random number
-- for what follows.
local function score_otherwise(numbers, count, random, policy, sample)
  local n = count / 3
  for at = 2, count, 3 do
    local used = (numbers[at] - 100) / CONTENTION
    if policy == SAMPLE then
      numbers[at] = used
    elseif policy == LEAST_LOADED then
      numbers[at] = floor(used * SHARE_UNIT / numbers[at - 1])
    else
      numbers[at] = 0
    end
  end
  if policy == SAMPLE then
    local k, members = math.min(sample, n), {}
    local state = random % (RANDOM_MODULUS - 1) + 1
    -- The slot is in the upper digits, so this sorts by slot.
    for i = 1, n do members[i] = numbers[3 * i] * MAX_BELOW + numbers[3 * i - 1] end
    for i = 1, k do
      state = state * RANDOM_FACTOR % RANDOM_MODULUS
      local j = i + floor(state * 2 * (n - i + 1) / WORD_BELOW)
      members[i], members[j] = members[j], members[i]
    end
    for i = k + 1, n do members[i] = nil end
    table.sort(members)
    for i = 1, k do
      local used = members[i] % MAX_BELOW
      numbers[3 * i - 1], numbers[3 * i] = used, (members[i] - used) / MAX_BELOW
    end
    n, random = k, state * RANDOM_FACTOR % RANDOM_MODULUS * 2
  end
  return 3 * n, random
end
