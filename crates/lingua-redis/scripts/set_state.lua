-- Drains, resumes, signs off or removes a node.
--
-- KEYS     hot cold nodes index leases due news
-- ARGV     1 now, 2 cell, 3 slot, 4 epoch, 5 order (drain resume offline retire)
-- RETURNS  {'stale'} or {'set', change or '', lost}: lost is job attempt, again and again
-- WHY ATOMIC  a node that leaves takes its leases along, so that its jobs are tried elsewhere at once
local hot, cold, nodes, index, leases, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local slot, epoch, order = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local data = record(cold, 0, COLD_BYTES, slot)
if not data then return { 'stale' } end
local known, beat, cpu, gpu, memory, cost, health, drain, offline, present = unpack_from(COLD, data)
if present == 0 or known ~= epoch then return { 'stale' } end

local before = state_of(health, drain, offline)
if order == 'drain' then
  drain = 1
elseif order == 'resume' then
  drain = 0
else
  offline = 1
end
local state = state_of(health, drain, offline)
local lost = {}
if offline == 1 then lost = end_leases_of(hot, leases, due, slot) end

local node = call('HGET', nodes, slot)
local at = HOT_HEAD + slot * HOT_BYTES
if order == 'retire' then
  local byte_at, bit_at = floor(slot / 8) + 1, 2 ^ (slot % 8)
  for name in string.gmatch(call('HGET', nodes, slot .. 'c'), '%S+') do
    local set = call('HGET', index, name)
    local byte = string.byte(set, byte_at) - bit_at
    set = string.sub(set, 1, byte_at - 1) .. string.char(byte) .. string.sub(set, byte_at + 1)
    if set == string.rep('\0', 16) then call('HDEL', index, name) else call('HSET', index, name, set) end
  end
  call('HDEL', nodes, slot, slot .. 'c')
  call('SETRANGE', hot, at, string.rep('\0', HOT_BYTES))
  -- The epoch stays: who had this slot cannot come back to it.
  call('SETRANGE', cold, slot * COLD_BYTES, pack(COLD, epoch, 0, 0, 0, 0, 0, 0, 0, 0, 0))
else
  local gate = string.byte(call('GETRANGE', hot, at + 9, at + 9))
  call('SETRANGE', hot, at + 9, string.char(state * 8 + gate % 8))
  call('SETRANGE', cold, slot * COLD_BYTES,
    pack(COLD, epoch, beat, cpu, gpu, memory, cost, health, drain, offline, 1))
end

local change = ''
if state ~= before or order == 'retire' then
  change = tell_node(KEYS[7], ARGV[2], slot, epoch, node)
end
return { 'set', change, lost }
