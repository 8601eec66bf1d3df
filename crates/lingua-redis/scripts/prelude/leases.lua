-- Leases, and the only places where the count of a node changes.
--
-- A selection reads up to a hundred nodes, so what it reads is three numbers for each node, side by
-- side in one string. Count, maximum and limit of a node are parts of one of them, so that a change
-- of the count reads and writes nothing else.
--
--   hot     all_fresh (double), then for each slot: cost, weight, room (doubles)
--           all_fresh  every node that is there is fresh until this time; it may be too low, which
--                      costs a search, and never too high
--           cost       milliseconds that a job takes on the idle node
--           weight     what one of its slots counts when cells are compared: WEIGHT_UNIT / cost
--           room       a whole number of four parts:
--
--             free slots | limit         | slots        | flexibility
--             FREE_UNIT  | LIMIT_UNIT    | MAX_UNIT     | 1
--             bits 30…   | bits 19 to 29 | bits 8 to 18 | bits 0 to 7
--
--   leases  hash, job → LEASE: slot u8, phase u8, attempt u32, fence double;
--           LEASES_HEAD → last fence, and a time before which no lease expires (doubles; the time
--           may be too low, and never too high); FILLER
--   due     sorted set, job by deadline_ms; FILLER at NEVER

-- A slot's room after its count has changed; then the new count and the maximum.
local function with_count(room, change)
  local max = floor(room / MAX_UNIT) % MAX_BELOW
  local used = max - floor(room / FREE_UNIT) + change
  return room - change * FREE_UNIT, used, max
end

-- A slot's room with another limit.
local function with_limit(room, limit)
  return room + (limit - floor(room / LIMIT_UNIT) % MAX_BELOW) * LIMIT_UNIT
end

-- Removes one named lease: the only place where a count goes down. What the attempt says about the
-- node (SUCCEEDED, FAILED, or nil) changes the node's limit.
local function end_lease(hot, leases, due, job, slot, outcome)
  call('HDEL', leases, job)
  call('ZREM', due, job)
  local at = HOT_HEAD + slot * HOT_BYTES + HOT_ROOM
  local room, used, max = with_count(unpack_from('<d', call('GETRANGE', hot, at, at + 7)), -1)
  local limit = floor(room / LIMIT_UNIT) % MAX_BELOW
  if outcome == SUCCEEDED and limit < max then
    room = with_limit(room, math.min(max, math.max(1, 2 * limit)))
  elseif outcome == FAILED then
    room = with_limit(room, floor(limit / 2))
  end
  call('SETRANGE', hot, at, pack('<d', room))
  return used, max
end
