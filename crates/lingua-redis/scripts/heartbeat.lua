-- Records that a node is alive and renews the leases of its running jobs. Changes a set only if the
-- node's state or overload has changed.
--
-- KEYS     hot cold fresh nodes index leases due unpublished
-- ARGV     1 now, 2 cell, 3 slot, 4 epoch, 5 health or '', 6 7 8 load (cpu, gpu, memory;
--          thousandths) or '', 9 cost_ms or '', 10 learned_ms, 11 jobs that it was learned from,
--          12 fresh_ms, 13 lease_ms, 14 overload bits of this load, 15… job attempt of each
--          running job
-- RETURNS  {'reregister'} or {'accepted', drain ordered, change or '', unknown}: unknown is the
--          positions in the list, from 1, of the running jobs without a lease
-- WHY ATOMIC  a lease is renewed only if it belongs to this node and this epoch at this moment
local hot, cold, fresh, nodes, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, due = KEYS[6], KEYS[7]
local slot, epoch, first_job = tonumber(ARGV[3]), tonumber(ARGV[4]), 15

local data = cold_record(cold, slot)
if not data then return { 'reregister' } end
local known, _, cpu, gpu, memory, cost, old_gate, health, drain, offline, present, learned,
  learned_from = unpack_from(COLD, data)
if present == 0 or known ~= epoch or offline == 1 then return { 'reregister' } end

if ARGV[5] ~= '' then health = tonumber(ARGV[5]) end
local state = state_of(health, drain, 0)
local overload = old_gate % STATE_UNIT
if ARGV[6] ~= '' then
  cpu, gpu, memory = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
  overload = tonumber(ARGV[14])
end
local gate = state * STATE_UNIT + overload
if gate ~= old_gate then set_gate(index, slot, gate) end
local used, max, flexibility, limit = counts_of(hot, slot)
if ARGV[9] ~= '' then
  if tonumber(ARGV[9]) ~= cost or limit == 0 then
    cost = tonumber(ARGV[9])
    write_hot(hot, slot, cost, used, max, flexibility, math.max(1, limit))
  end
  learned, learned_from = tonumber(ARGV[10]), tonumber(ARGV[11])
elseif limit == 0 then
  write_hot(hot, slot, cost, used, max, flexibility, 1)
end
-- Instances may have been told that nobody here can do a job.
local is_back = set_fresh(hot, fresh, slot, now + tonumber(ARGV[12]))
call('SETRANGE', cold, slot * COLD_BYTES,
  pack(COLD, epoch, now, cpu, gpu, memory, cost, gate, health, drain, 0, 1, learned,
    learned_from))

local unknown = {}
if #ARGV >= first_job then
  local jobs, renewed = {}, {}
  for i = first_job, #ARGV, 2 do jobs[#jobs + 1] = ARGV[i] end
  local found = call('HMGET', leases, unpack(jobs))
  local deadline = now + tonumber(ARGV[13])
  for i = 1, #jobs do
    local of, attempt
    if found[i] then of, _, attempt = unpack_from(LEASE, found[i]) end
    if of == slot and attempt == tonumber(ARGV[first_job + 2 * i - 1]) then
      renewed[#renewed + 1] = deadline
      renewed[#renewed + 1] = jobs[i]
    else
      unknown[#unknown + 1] = i
    end
  end
  if #renewed > 0 then call('ZADD', due, 'GT', unpack(renewed)) end
end

local change = ''
if is_back or floor(old_gate / STATE_UNIT) ~= state then
  change = node_change(KEYS[8], ARGV[2], slot, epoch, name_of(call('HGET', nodes, slot)))
end
return { 'accepted', drain, change, unknown }
