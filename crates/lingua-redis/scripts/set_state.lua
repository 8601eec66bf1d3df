-- Drains, resumes, signs off or removes a node.
--
-- KEYS     hot cold fresh nodes index leases due unpublished
-- ARGV     1 now, 2 cell, 3 slot, 4 epoch, 5 command (drain resume offline retire),
--          6 how long a node that signs off counts as capable
-- RETURNS  {'stale'} or {'set', change or '', lost}: lost is job attempt, repeated
-- WHY ATOMIC  the leases of a node end with it, so that its jobs are retried elsewhere at once
local hot, cold, fresh, nodes, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, due = KEYS[6], KEYS[7]
local slot, epoch, command = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local data = cold_record(cold, slot)
if not data then return { 'stale' } end
local known, heartbeat, cpu, gpu, memory, cost, old_gate, health, drain, offline, present, learned,
  learned_from = unpack_from(COLD, data)
if present == 0 or known ~= epoch then return { 'stale' } end

if command == 'drain' then
  drain = 1
elseif command == 'resume' then
  drain = 0
else
  if offline == 0 then set_fresh(hot, fresh, slot, now + tonumber(ARGV[6])) end
  offline = 1
end
local state = state_of(health, drain, offline)
local lost = {}
if offline == 1 then lost = end_leases_of(hot, leases, due, slot, (counts_of(hot, slot))) end

local entry = call('HGET', nodes, slot)
if command == 'retire' then
  local sets = { '+there', '+gone', '+open' }
  for name in each_set(call('HGET', nodes, slot .. 'c')) do sets[#sets + 1] = name end
  set_member(index, sets, slot, false)
  call('HDEL', nodes, slot, slot .. 'c', slot .. 'v')
  call('SETRANGE', hot, HOT_HEAD + slot * HOT_BYTES, string.rep('\0', HOT_BYTES))
  -- The epoch stays, so that the former node cannot come back to this slot.
  call('SETRANGE', cold, slot * COLD_BYTES, pack(COLD, epoch, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
else
  local gate = state * STATE_UNIT + old_gate % STATE_UNIT
  if gate ~= old_gate then set_gate(index, slot, gate) end
  call('SETRANGE', cold, slot * COLD_BYTES,
    pack(COLD, epoch, heartbeat, cpu, gpu, memory, cost, gate, health, drain, offline, 1,
      learned, learned_from))
end

local change = ''
if floor(old_gate / STATE_UNIT) ~= state or command == 'retire' then
  change = node_change(KEYS[8], ARGV[2], slot, epoch, name_of(entry))
end
return { 'set', change, lost }
