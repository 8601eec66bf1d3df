-- Writes a node and its capabilities into its slot.
--
-- KEYS     hot cold fresh nodes index leases due unpublished
-- ARGV     1 now, 2 cell, 3 slot, 4 epoch, 5 node, 6 'epoch name via', 7 health, 8 cost_ms,
--          9 learned_ms, 10 jobs that it was learned from, 11 fresh_ms, 12 slots_max,
--          13 flexibility, 14 overload bits of a node without load,
--          15 capabilities: facts, '|', and the sets of the node, in order, separated by spaces,
--          16 version of its software or '', 17 whether the node keeps all its leases (1 or 0),
--          18… job attempt of each lease that it keeps if not all
-- RETURNS  {'stale', highest epoch of the slot} or {'registered', change or '', lost, cost_ms,
--          learned_ms, jobs}: lost is job attempt, repeated
-- WHY ATOMIC  the old epoch's leases end or move in the moment in which the new one can get its
--             first. A lease has no epoch of its own, so one that is kept stays as it is
local hot, cold, fresh, nodes, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, due = KEYS[6], KEYS[7]
local slot, epoch, node = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local health, cost = tonumber(ARGV[7]), tonumber(ARGV[8])
local learned, learned_from = tonumber(ARGV[9]), tonumber(ARGV[10])
local max, flexibility, capabilities = tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[15]

local known, cpu, gpu, memory, old_gate, old_drain, present = 0, 0, 0, 0, 0, 0, 0
local old_cost, old_learned, old_learned_from = 0, 0, 0
local old = cold_record(cold, slot)
if old then
  local _
  known, _, cpu, gpu, memory, old_cost, old_gate, _, old_drain, _, present, old_learned,
    old_learned_from = unpack_from(COLD, old)
end
local used, old_max, _, limit = counts_of(hot, slot)
local old_node, old_capabilities = false, ''
if present == 1 then
  local fields = call('HMGET', nodes, slot, slot .. 'c')
  old_node, old_capabilities = name_of(fields[1]), fields[2]
end
local same = present == 1 and known == epoch and old_node == node
if epoch <= known and not (same and old_gate < OFFLINE * STATE_UNIT) then
  return { 'stale', known }
end

local lost, overload = {}, old_gate % STATE_UNIT
if not same then
  if old_node ~= node then
    lost = end_leases_of(hot, leases, due, slot, used)
  elseif ARGV[17] == '0' then
    local kept = {}
    for i = 18, #ARGV, 2 do kept[ARGV[i] .. ' ' .. ARGV[i + 1]] = true end
    lost = end_leases_of(hot, leases, due, slot, used, kept)
  end
  used = used - #lost / 2
  cpu, gpu, memory, overload = 0, 0, 0, tonumber(ARGV[14])
end
-- A drain command survives the node's reconnect, but not the node.
local drain = 0
if old_node == node then
  drain, limit = old_drain, math.max(1, limit)
  -- So does what was learned of it.
  if learned_from == 0 and old_learned_from > 0 then
    cost, learned, learned_from = old_cost, old_learned, old_learned_from
  end
else
  limit = LIMIT_NEW
end
limit = math.min(limit, max)
local state = state_of(health, drain, 0)

-- The sets that it leaves and joins: the cost grows with its languages, never with pairs of them.
if old_capabilities ~= capabilities then
  local has, joins, leaves = {}, {}, {}
  for name in each_set(old_capabilities) do has[name] = true end
  for name in each_set(capabilities) do
    if has[name] then has[name] = nil else joins[#joins + 1] = name end
  end
  for name in pairs(has) do leaves[#leaves + 1] = name end
  set_member(index, leaves, slot, false)
  set_member(index, joins, slot, true)
end

call('HSETNX', index, FILLER, '')
local gate = state * STATE_UNIT + overload
set_gate(index, slot, gate)
local is_back = set_fresh(hot, fresh, slot, now + tonumber(ARGV[11]))
write_hot(hot, slot, cost, used, max, flexibility, limit)
call('SETRANGE', cold, slot * COLD_BYTES,
  pack(COLD, epoch, now, cpu, gpu, memory, cost, gate, health, drain, 0, 1, learned,
    learned_from))
call('HSET', nodes, slot, ARGV[6], slot .. 'c', capabilities)
if ARGV[16] ~= '' then
  call('HSET', nodes, slot .. 'v', ARGV[16])
else
  call('HDEL', nodes, slot .. 'v')
end

local is_change = is_back or present == 0 or known ~= epoch or floor(old_gate / STATE_UNIT) ~= state
  or old_capabilities ~= capabilities or old_max ~= max
local change = ''
if is_change then change = node_change(KEYS[8], ARGV[2], slot, epoch, node) end
return { 'registered', change, lost, cost, learned, learned_from }
