-- Leases, and the only places where the count of a node changes.
--
-- A selection reads up to a hundred nodes, so what it reads is two numbers for each node, side by
-- side in one string. Cost, count and maximum of a node follow from these two, so that a change of
-- the count reads and writes nothing else.
--
--   hot     all_fresh (double), then for each slot: delay (double), room (double)
--           all_fresh  every node that is there is fresh until this time; it may be too low, which
--                      costs a search, and never too high
--           delay      cost_ms * (100 + CONTENTION * used)
--           room       a whole number of four parts:
--
--             free slots | slots        | one slot only | flexibility
--             FREE_UNIT  | MAX_UNIT     | SINGLE        | 1
--             bits 20…   | bits 9 to 19 | bit 8         | bits 0 to 7
--
--   leases  hash, job → LEASE: slot u8, phase u8, attempt u32, fence double;
--           LEASES_HEAD → last fence, and a time before which no lease expires (doubles; the time
--           may be too low, and never too high)
--   due     sorted set, job by deadline_ms

-- A slot's delay and room after its count has changed; then the new count and the maximum.
local function with_count(delay, room, change)
  local max = floor(room / MAX_UNIT) % MAX_BELOW
  local used = max - floor(room / FREE_UNIT)
  local cost = delay / (100 + CONTENTION * used)
  used = used + change
  return cost * (100 + CONTENTION * used), room - change * FREE_UNIT, used, max
end

-- Removes one named lease: the only place where a count goes down.
local function end_lease(hot, leases, due, job, slot)
  call('HDEL', leases, job)
  call('ZREM', due, job)
  local at = HOT_HEAD + slot * HOT_BYTES
  local delay, room = unpack_from('<dd', call('GETRANGE', hot, at, at + HOT_BYTES - 1))
  local used, max
  delay, room, used, max = with_count(delay, room, -1)
  call('SETRANGE', hot, at, pack('<dd', delay, room))
  return used, max
end
