-- What the scripts on a cell share: how nodes and leases are stored, and the only ways in which counts change.
--
-- A cell's nodes are fixed-width records in two strings, so that a choice reads one value and a write
-- touches a few bytes (and replicates as few). Slot n is the n-th record; zeros mean that nobody is there.
--
--   hot   8 bytes: the last fence (double), then for each slot 18 bytes
--         cost_ms u32, used u16, max u16, flexibility u8, gate u8, fresh_until_ms double
--   cold  for each slot 30 bytes
--         epoch double, heartbeat_ms double, cpu, gpu, memory u16, cost_ms as told u32,
--         health u8, drain ordered u8, signed off u8, present u8
--
-- gate is 8 * state + overload bits (cpu 1, gpu 2, memory 4): 0 may be chosen, from 32 on it is not there.
-- States: 0 ready, 1 registering, 2 degraded, 3 draining, 4 offline. Healths are the first four.
-- A lease is 14 bytes: slot u8, phase u8 (0 reserved, 1 committed), attempt u32, fence double.

local HOT, COLD, LEASE = '<I4I2I2BBd', '<ddI2I2I2I4BBBB', '<BBI4d'
local HOT_HEAD, HOT_BYTES, COLD_BYTES = 8, 18, 30
local OFFLINE_GATE = 32

-- One record of a string of records, or nil.
local function record(key, head, bytes, slot)
  local at = head + slot * bytes
  local data = call('GETRANGE', key, at, at + bytes - 1)
  if #data == bytes then return data end
end

-- Changes the count of a slot's leases; gives the new count and the slot's maximum.
local function add_used(hot, slot, change)
  local at = HOT_HEAD + slot * HOT_BYTES + 4
  local used, max = unpack_from('<I2I2', call('GETRANGE', hot, at, at + 3))
  used = used + change
  call('SETRANGE', hot, at, pack('<I2', used))
  return used, max
end

-- Removes one named lease: the only way in which a count goes down.
local function end_lease(hot, leases, due, job, slot)
  call('HDEL', leases, job)
  call('ZREM', due, job)
  return add_used(hot, slot, -1)
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
  return #jobs
end

-- Ends all leases of a slot; gives job, attempt of each. Looks at the whole cell, so it is for rare events.
local function end_leases_of(hot, leases, due, slot)
  local lost = {}
  local data = record(hot, HOT_HEAD, HOT_BYTES, slot)
  local left = 0
  if data then left = unpack_from('<I2', data, 5) end
  if left == 0 then return lost end
  local all = call('HGETALL', leases)
  for i = 1, #all, 2 do
    local at, _, attempt = unpack_from(LEASE, all[i + 1])
    if at == slot then
      end_lease(hot, leases, due, all[i], slot)
      lost[#lost + 1] = all[i]
      lost[#lost + 1] = attempt
      left = left - 1
      if left == 0 then break end
    end
  end
  return lost
end

local function state_of(health, drain, offline)
  if offline == 1 then return 4 end
  if drain == 1 then return 3 end
  return health
end

-- Writes down a change of a node, in the cell itself: whoever asked tells the feed, which may be on another
-- server, and then takes it off this list. If it dies in between, the next clean-up tells it.
local function tell_node(news, cell, slot, epoch, node)
  local change = 'node ' .. cell .. ' ' .. slot .. ' ' .. text(epoch) .. ' ' .. node
  call('RPUSH', news, change)
  return change
end
