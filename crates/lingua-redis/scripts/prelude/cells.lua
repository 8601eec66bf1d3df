-- How nodes are stored, and what is read of them. Leases are in leases.lua, changes of nodes in nodes.lua.
--
-- Everything that is true or false of a node is a set (16 bytes, bit n for slot n); what a choice compares is in `hot`;
-- the rest is out of the way. A write touches a few bytes, and replicates as few. Zeros mean that nobody is there.
--
--   cold   for each slot 31 bytes: epoch double, heartbeat_ms double, cpu, gpu, memory u16, cost_ms u32,
--          gate u8, health u8, drain ordered u8, signed off u8, present u8
--   fresh  for each slot a double: until when its last sign of life counts
--   index  hash, name of a set → set. '+there': not signed off. '+open': ready and not overloaded. Others: what a node
--          can do, see cell/profile.rs
--   nodes  hash, slot → 'epoch name via', slot .. 'c' → capabilities: facts, '|', and the sets it is in,
--         slot .. 'v' → version of its software, if it has said one
--
-- gate is 8 * state + overload bits (cpu 1, gpu 2, memory 4). States: 0 ready, 1 registering, 2 degraded, 3 draining,
-- 4 offline. Healths are the first four.

local COLD, COLD_BYTES = '<ddI2I2I2I4BBBBB', 31
local OFFLINE, NEVER = 4, 9007199254740991

-- A slot's cold record, or nil.
local function cold_record(cold, slot)
  local at = slot * COLD_BYTES
  local data = call('GETRANGE', cold, at, at + COLD_BYTES - 1)
  if #data == COLD_BYTES then return data end
end

-- How many leases a slot has, how many it may have, and its flexibility.
local function counts_of(hot, slot)
  local at = HOT_HEAD + slot * HOT_BYTES
  local data = call('GETRANGE', hot, at, at + HOT_BYTES - 1)
  if #data < HOT_BYTES then return 0, 0, 0 end
  local _, room = unpack_from('<dd', data)
  local max = floor(room / MAX) % MAX_BELOW
  return max - floor(room / FREE), max, room % 256
end

-- Ends up to `limit` leases whose time is over, oldest first; adds job, attempt, slot, phase of each to `expired`.
local function reap(hot, leases, due, limit, expired)
  if limit == 0 then return 0 end
  local jobs = call('ZRANGEBYSCORE', due, '-inf', '(' .. text(now), 'LIMIT', 0, limit)
  for i = 1, #jobs do
    local slot, phase, attempt = unpack_from(LEASE, call('HGET', leases, jobs[i]))
    end_lease(hot, leases, due, jobs[i], slot)
    local n = #expired
    expired[n + 1], expired[n + 2], expired[n + 3], expired[n + 4] = jobs[i], attempt, slot, phase
  end
  if #jobs < limit then
    local first, head = call('ZRANGE', due, 0, 0, 'WITHSCORES'), call('HGET', leases, LEASES_HEAD)
    local fence = head and unpack_from('<d', head) or 0
    call('HSET', leases, LEASES_HEAD, pack('<dd', fence, first[2] or NEVER))
  end
  return #jobs
end
