-- Gives a slot back. A second time it changes nothing.
--
-- KEYS     hot cold leases due
-- ARGV     1 now, 2 job, 3 attempt
-- RETURNS  {slot, used, max}, or {} if there is no such lease
-- WHY ATOMIC  the count goes down if and only if this lease was there
local data = call('HGET', KEYS[3], ARGV[2])
if not data then return {} end
local slot, _, attempt = unpack_from(LEASE, data)
if attempt ~= tonumber(ARGV[3]) then return {} end
local used, max = end_lease(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[2], slot)
return { slot, used, max }
