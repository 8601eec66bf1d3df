-- Gives a slot back; the outcome changes the node's limit. The second time it changes nothing.
--
-- KEYS     hot leases due
-- ARGV     1 now, 2 job, 3 attempt, 4 outcome (SUCCEEDED, FAILED, or another number)
-- RETURNS  slot + FREED_USED * used + FREED_MAX * max, or -1 if there is no such lease
-- WHY ATOMIC  the count goes down if and only if this lease was there
local data = call('HGET', KEYS[2], ARGV[2])
if not data then return -1 end
local slot, _, attempt = unpack_from(LEASE, data)
if attempt ~= tonumber(ARGV[3]) then return -1 end
local used, max = end_lease(KEYS[1], KEYS[2], KEYS[3], ARGV[2], slot, tonumber(ARGV[4]))
return slot + FREED_USED * used + FREED_MAX * max
