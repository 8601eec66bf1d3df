-- Puts a node and what it can do into its slot.
--
-- KEYS     hot cold nodes index leases due news
-- ARGV     1 now, 2 cell, 3 slot, 4 epoch, 5 node, 6 health, 7 cost_ms, 8 cost_ms within bounds, 9 fresh_ms,
--          10 slots_max, 11 flexibility, 12 overload bits of a node without load,
--          13 capabilities: the sets the node is in, in order, separated by spaces
-- RETURNS  {'stale', epoch known here} or {'registered', change or '', lost}: lost is job attempt, again and again
-- WHY ATOMIC  the old epoch's leases end in the same moment in which the new one can get its first
local hot, cold, nodes, index, leases, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local slot, epoch, node = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local health, max, capabilities = tonumber(ARGV[6]), tonumber(ARGV[10]), ARGV[13]
local SETS_AT_ONCE = 500

local known, cpu, gpu, memory, old_health, old_drain, old_offline, present = 0, 0, 0, 0, 0, 0, 0, 0
local old = record(cold, 0, COLD_BYTES, slot)
if old then
  local _
  known, _, cpu, gpu, memory, _, old_health, old_drain, old_offline, present = unpack_from(COLD, old)
end
local old_node, old_capabilities, old_max = false, '', 0
if present == 1 then
  local what = call('HMGET', nodes, slot, slot .. 'c')
  old_node, old_capabilities = what[1], what[2]
  old_max = unpack_from('<I2', record(hot, HOT_HEAD, HOT_BYTES, slot), 7)
end
local same = present == 1 and known == epoch and old_node == node
if epoch <= known and not (same and old_offline == 0) then
  return { 'stale', known }
end

local lost = {}
local used, overload = 0, tonumber(ARGV[12])
if same then
  local _, gate
  _, used, _, _, gate = unpack_from(HOT, record(hot, HOT_HEAD, HOT_BYTES, slot))
  overload = gate % 8
else
  lost = end_leases_of(hot, leases, due, slot)
  cpu, gpu, memory = 0, 0, 0
end
-- An operator's order outlives the node's reconnect, but not the node.
local drain = 0
if old_node == node then drain = old_drain end
local state = state_of(health, drain, 0)

-- The sets it leaves and joins: cost grows with its languages, never with pairs of them.
local byte_at, bit_at = floor(slot / 8) + 1, 2 ^ (slot % 8)
local NOBODY = string.rep('\0', 16)

local function update(names, member)
  for from = 1, #names, SETS_AT_ONCE do
    local upto = math.min(from + SETS_AT_ONCE - 1, #names)
    local sets = call('HMGET', index, unpack(names, from, upto))
    local write, drop = {}, {}
    for i = 1, upto - from + 1 do
      local set, name = sets[i] or NOBODY, names[from + i - 1]
      local byte = string.byte(set, byte_at)
      local is_member = floor(byte / bit_at) % 2 == 1
      if is_member ~= member then
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

if old_capabilities ~= capabilities then
  local keeps, joins, leaves = {}, {}, {}
  for name in string.gmatch(capabilities, '%S+') do keeps[name] = true end
  for name in string.gmatch(old_capabilities, '%S+') do
    if keeps[name] then keeps[name] = nil else leaves[#leaves + 1] = name end
  end
  for name in string.gmatch(capabilities, '%S+') do
    if keeps[name] then joins[#joins + 1] = name end
  end
  update(leaves, false)
  update(joins, true)
end

local fresh_until = now + tonumber(ARGV[9])
call('SETRANGE', hot, HOT_HEAD + slot * HOT_BYTES,
  pack(HOT, tonumber(ARGV[8]), used, max, tonumber(ARGV[11]), state * 8 + overload, fresh_until))
call('SETRANGE', cold, slot * COLD_BYTES,
  pack(COLD, epoch, now, cpu, gpu, memory, tonumber(ARGV[7]), health, drain, 0, 1))
call('HSET', nodes, slot, node, slot .. 'c', capabilities)

local is_news = present == 0 or known ~= epoch or state_of(old_health, old_drain, old_offline) ~= state
  or old_capabilities ~= capabilities or old_max ~= max
local change = ''
if is_news then change = tell_node(KEYS[7], ARGV[2], slot, epoch, node) end
return { 'registered', change, lost }
