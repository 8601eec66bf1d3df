-- Leases, and the only ways in which counts change.
--
-- A choice has to look at up to a hundred nodes, so what it looks at is two numbers for each, side by side in one
-- string. From these two follows what a node's cost, count and maximum are, so a change of the count reads and writes
-- nothing else.
--
--   hot    8 bytes: a time until which every node that is there is fresh (double; it may be too low, which costs a
--          look, and never too high);
--          then for each slot 16 bytes: delay (double) = cost * (100 + 15 * used), in hundredths of a millisecond;
--          room (double) = free slots * 2^20 + slots * 2^9 + 256 if it has a single slot + flexibility
--   leases hash, job → 14 bytes: slot u8, phase u8 (0 reserved, 1 committed), attempt u32, fence double;
--          '#' → last fence, a time before which no lease ends (doubles; the time may be too low, and never too high)
--   due    sorted set, job by deadline_ms

local LEASE, LEASES_HEAD = '<BBI4d', '#'
local HOT_HEAD, HOT_BYTES = 8, 16
local FREE, MAX, MAX_BELOW = 1048576, 512, 2048
local CONTENTION = 15

-- A slot's delay and room after its count has changed; the new count, and the slot's maximum.
local function counted(delay, room, change)
  local max = floor(room / MAX) % MAX_BELOW
  local used = max - floor(room / FREE)
  local cost = delay / (100 + CONTENTION * used)
  used = used + change
  return cost * (100 + CONTENTION * used), room - change * FREE, used, max
end

-- Removes one named lease: the only way in which a count goes down.
local function end_lease(hot, leases, due, job, slot)
  call('HDEL', leases, job)
  call('ZREM', due, job)
  local at = HOT_HEAD + slot * HOT_BYTES
  local delay, room = unpack_from('<dd', call('GETRANGE', hot, at, at + HOT_BYTES - 1))
  local used, max
  delay, room, used, max = counted(delay, room, -1)
  call('SETRANGE', hot, at, pack('<dd', delay, room))
  return used, max
end
