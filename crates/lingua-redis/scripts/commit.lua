-- Turns an ACK lease into a run lease.
--
-- KEYS     leases due
-- ARGV     1 now, 2 job, 3 attempt, 4 run_lease_ms
-- RETURNS  {'committed', fence}, {'stale'} (another attempt holds a slot here) or {'gone'}
-- WHY ATOMIC  a lease that was ended in the meantime must not come back
local data = call('HGET', KEYS[1], ARGV[2])
if not data then return { 'gone' } end
local slot, phase, attempt, fence = unpack_from(LEASE, data)
if attempt ~= tonumber(ARGV[3]) then return { 'stale' } end
if phase == 0 then call('HSET', KEYS[1], ARGV[2], pack(LEASE, slot, 1, attempt, fence)) end
call('ZADD', KEYS[2], 'GT', now + tonumber(ARGV[4]), ARGV[2])
return { 'committed', fence }
