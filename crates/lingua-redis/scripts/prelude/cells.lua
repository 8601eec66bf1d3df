-- How nodes are stored, and how they are read. Leases are in leases.lua, changes in nodes.lua.
--
-- Everything that is true or false of a node is a set (SET_BYTES bytes, bit n for slot n). What a
-- selection compares is in `hot`. The rest is apart. A write touches a few bytes, and as few are
-- replicated. Zeros mean that no node is there.
--
--   cold   for each slot COLD: epoch double, heartbeat_ms double, cpu, gpu, memory u16,
--          cost_ms u32, gate u8, health u8, drain ordered u8, signed off u8, present u8,
--          learned_ms u32, jobs that it was learned from u16
--   fresh  for each slot a double: the node counts as alive until then
--   index  hash, name of a set → set. '+there': not signed off. '+gone': signed off. '+open': ready
--          and not overloaded. The others are capabilities, see cell/profile.rs
--   nodes  hash, slot → 'epoch name via'; slot .. 'c' → capabilities: facts, '|', and the sets that
--          the node is in; slot .. 'v' → version of its software, if it has reported one
--
-- The gate is STATE_UNIT * state + overload bits (cpu 1, gpu 2, memory 4). States: READY,
-- REGISTERING, DEGRADED, DRAINING, OFFLINE. The first four are also the healths.

-- A slot's cold record, or nil.
local function cold_record(cold, slot)
  local at = slot * COLD_BYTES
  local data = call('GETRANGE', cold, at, at + COLD_BYTES - 1)
  if #data == COLD_BYTES then return data end
end

-- A slot's leases, its maximum, its flexibility, and its limit.
local function counts_of(hot, slot)
  local at = HOT_HEAD + slot * HOT_BYTES + HOT_ROOM
  local data = call('GETRANGE', hot, at, at + 7)
  if #data < 8 then return 0, 0, 0, 0 end
  local room = unpack_from('<d', data)
  local max = floor(room / MAX_UNIT) % MAX_BELOW
  return max - floor(room / FREE_UNIT), max, room % FLEXIBILITY_BELOW,
    floor(room / LIMIT_UNIT) % MAX_BELOW
end

-- Ends up to `limit` expired leases, oldest first; adds job, attempt, slot, phase of each to
-- `expired`. Returns how many.
local function reap(hot, leases, due, limit, expired)
  if limit == 0 then return 0 end
  local head = call('HGET', leases, LEASES_HEAD)
  if not head then
    call('HSET', leases, FILLER, '')
    call('ZADD', due, text(NEVER), FILLER)
  end
  local jobs = call('ZRANGEBYSCORE', due, '-inf', '(' .. text(now), 'LIMIT', 0, limit)
  for i = 1, #jobs do
    local data = call('HGET', leases, jobs[i])
    if data and #data == LEASE_BYTES then
      local slot, phase, attempt = unpack_from(LEASE, data)
      end_lease(hot, leases, due, jobs[i], slot)
      local n = #expired
      expired[n + 1], expired[n + 2], expired[n + 3], expired[n + 4] = jobs[i], attempt, slot, phase
    else
      -- Somebody else wrote it: it must not keep the cell from serving.
      call('ZREM', due, jobs[i])
    end
  end
  if #jobs < limit then
    local first = call('ZRANGE', due, 0, 0, 'WITHSCORES')
    local fence = head and unpack_from('<d', head) or 0
    call('HSET', leases, LEASES_HEAD, pack('<dd', fence, first[2] or NEVER))
  end
  return #jobs
end
