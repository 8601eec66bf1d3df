-- Extends a lease from the ACK deadline to the run deadline.
--
-- KEYS     leases due
-- ARGV     1 now, 2 job, 3 attempt, 4 run_lease_ms
-- RETURNS  the fence, 0 if the lease is gone, or -1 if another attempt holds a slot here
-- WHY ATOMIC  a lease that has ended in the meantime must not come back
local leases, job = KEYS[1], ARGV[2]
local data = call('HGET', leases, job)
if not data then return 0 end
local slot, phase, attempt, fence = unpack_from(LEASE, data)
if attempt ~= tonumber(ARGV[3]) then return -1 end
if phase ~= PHASE_COMMITTED then
  call('HSET', leases, job, pack(LEASE, slot, PHASE_COMMITTED, attempt, fence))
end
call('ZADD', KEYS[2], 'GT', text(now + ARGV[4]), job)
return fence
