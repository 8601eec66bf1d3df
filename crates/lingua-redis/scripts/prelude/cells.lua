-- What the scripts on a cell share: how nodes and leases are stored, and the only ways in which counts change.
--
-- A choice has to look at up to a hundred nodes, so what it looks at is two numbers for each, side by side in one
-- string; everything that is true or false of a node is a set (16 bytes, bit n for slot n); the rest is elsewhere. A
-- write touches a few bytes, and replicates as few. Zeros mean that nobody is there.
--
--   hot    24 bytes: last fence, a time until which every node that is there is fresh, a time before which no lease ends
--          (doubles; the times may be too low, which costs a look, and never too high);
--          then for each slot 16 bytes: delay (double) = cost * (100 + 15 * used), in hundredths of a millisecond;
--          room (double) = free slots * 512 + 256 if it has a single slot + flexibility
--   cold   for each slot 36 bytes: epoch double, heartbeat_ms double, cpu, gpu, memory u16, cost_ms u32, used u16,
--          max u16, flexibility u8, gate u8, health u8, drain ordered u8, signed off u8, present u8
--   fresh  for each slot a double: until when its last sign of life counts
--   index  hash, name of a set → set. '+there': not signed off. '+open': ready and not overloaded. Others: what a node
--          can do, see cell/profile.rs
--   leases hash, job → 14 bytes: slot u8, phase u8 (0 reserved, 1 committed), attempt u32, fence double
--   due    sorted set, job by deadline_ms
--   nodes  hash, slot → 'epoch name via', slot .. 'c' → capabilities: facts, '|', and the sets it is in,
--         slot .. 'v' → version of its software, if it has said one
--
-- gate is 8 * state + overload bits (cpu 1, gpu 2, memory 4). States: 0 ready, 1 registering, 2 degraded, 3 draining,
-- 4 offline. Healths are the first four.

local COLD, LEASE = '<ddI2I2I2I4I2I2BBBBBB', '<BBI4d'
local HOT_HEAD, HOT_BYTES, COLD_BYTES = 24, 16, 36
local COST_AT, USED_AT = 22, 26
local COST_MS_MAX, CONTENTION = 3600000, 15
local OFFLINE, NEVER = 4, 9007199254740991

-- A slot's cold record, or nil.
local function cold_record(cold, slot)
  local at = slot * COLD_BYTES
  local data = call('GETRANGE', cold, at, at + COLD_BYTES - 1)
  if #data == COLD_BYTES then return data end
end

-- What a choice looks at.
local function write_hot(hot, slot, cost, used, max, flexibility)
  if cost < 1 then cost = 1 elseif cost > COST_MS_MAX then cost = COST_MS_MAX end
  local room = max - used
  if room < 0 then room = 0 end
  room = room * 512 + flexibility
  if max == 1 then room = room + 256 end
  call('SETRANGE', hot, HOT_HEAD + slot * HOT_BYTES, pack('<dd', cost * (100 + CONTENTION * used), room))
end

-- Changes the count of a slot's leases; gives the new count and the slot's maximum.
local function add_used(hot, cold, slot, change)
  local at = slot * COLD_BYTES
  local cost, used, max, flexibility =
    unpack_from('<I4I2I2B', call('GETRANGE', cold, at + COST_AT, at + COST_AT + 8))
  used = used + change
  call('SETRANGE', cold, at + USED_AT, pack('<I2', used))
  write_hot(hot, slot, cost, used, max, flexibility)
  return used, max
end

-- Removes one named lease: the only way in which a count goes down.
local function end_lease(hot, cold, leases, due, job, slot)
  call('HDEL', leases, job)
  call('ZREM', due, job)
  return add_used(hot, cold, slot, -1)
end

-- Ends up to `limit` leases whose time is over, oldest first; adds job, attempt, slot, phase of each to `expired`.
local function reap(hot, cold, leases, due, limit, expired)
  if limit == 0 then return 0 end
  local jobs = call('ZRANGEBYSCORE', due, '-inf', '(' .. text(now), 'LIMIT', 0, limit)
  for i = 1, #jobs do
    local slot, phase, attempt = unpack_from(LEASE, call('HGET', leases, jobs[i]))
    end_lease(hot, cold, leases, due, jobs[i], slot)
    local n = #expired
    expired[n + 1], expired[n + 2], expired[n + 3], expired[n + 4] = jobs[i], attempt, slot, phase
  end
  if #jobs < limit then
    local first = call('ZRANGE', due, 0, 0, 'WITHSCORES')
    call('SETRANGE', hot, 16, pack('<d', first[2] or NEVER))
  end
  return #jobs
end

-- Ends all leases of a slot, of which there are `left`; gives job, attempt of each. Looks at the whole cell, so it is
-- for rare events.
local function end_leases_of(hot, cold, leases, due, slot, left)
  local lost = {}
  if left == 0 then return lost end
  local all = call('HGETALL', leases)
  for i = 1, #all, 2 do
    local at, _, attempt = unpack_from(LEASE, all[i + 1])
    if at == slot then
      end_lease(hot, cold, leases, due, all[i], slot)
      lost[#lost + 1] = all[i]
      lost[#lost + 1] = attempt
      left = left - 1
      if left == 0 then break end
    end
  end
  return lost
end

local function state_of(health, drain, offline)
  if offline == 1 then return OFFLINE end
  if drain == 1 then return 3 end
  return health
end

-- Puts a slot into sets or takes it out of them; a set that nobody is left in leaves no trace.
local NOBODY = string.rep('\0', 16)
local SETS_AT_ONCE = 500

local function set_member(index, names, slot, member)
  local byte_at, bit_at = floor(slot / 8) + 1, 2 ^ (slot % 8)
  for from = 1, #names, SETS_AT_ONCE do
    local upto = math.min(from + SETS_AT_ONCE - 1, #names)
    local sets = call('HMGET', index, unpack(names, from, upto))
    local write, drop = {}, {}
    for i = 1, upto - from + 1 do
      local set, name = sets[i] or NOBODY, names[from + i - 1]
      local byte = string.byte(set, byte_at)
      if (floor(byte / bit_at) % 2 == 1) ~= member then
        byte = byte + (member and bit_at or -bit_at)
        set = string.sub(set, 1, byte_at - 1) .. string.char(byte) .. string.sub(set, byte_at + 1)
        if set == NOBODY then
          drop[#drop + 1] = name
        else
          write[#write + 1] = name
          write[#write + 1] = set
        end
      end
    end
    if #write > 0 then call('HSET', index, unpack(write)) end
    if #drop > 0 then call('HDEL', index, unpack(drop)) end
  end
end

-- Keeps the sets of who is there and who may be chosen in step with the gate.
local function set_gate(index, slot, gate)
  set_member(index, { '+there' }, slot, gate < OFFLINE * 8)
  set_member(index, { '+open' }, slot, gate == 0)
end

-- Notes a sign of life.
local function set_fresh(hot, fresh, slot, until_ms)
  call('SETRANGE', fresh, slot * 8, pack('<d', until_ms))
  local all_fresh = call('GETRANGE', hot, 8, 15)
  if #all_fresh < 8 or unpack_from('<d', all_fresh) > until_ms then
    call('SETRANGE', hot, 8, pack('<d', until_ms))
  end
end

-- Writes down a change of a node, in the cell itself: whoever asked tells the feed, which may be on another
-- server, and then takes it off this list. If it dies in between, the next clean-up tells it.
local function tell_node(news, cell, slot, epoch, node)
  local change = 'node ' .. cell .. ' ' .. slot .. ' ' .. text(epoch) .. ' ' .. node
  call('RPUSH', news, change)
  return change
end

local function name_of(entry)
  return string.match(entry, ' (%S+)')
end

-- The names of the sets in a node's capabilities, one after the other.
local function each_set(capabilities)
  return string.gmatch(string.match(capabilities, '|(.*)') or '', '%S+')
end
