-- Puts a message into an instance's inbox.
--
-- KEYS     presence inbox
-- ARGV     1 now, 2 messages at most, 3 message
-- RETURNS  'sent', 'no_instance' or 'full'
-- WHY ATOMIC  the number of a message and its position in the inbox agree
--
--   inbox  stream; the id of message n is n-0. Numbers follow the clock, so that a store that lost
--          its last writes does not repeat a number that a reader has acknowledged.
local known = call('HMGET', KEYS[1], 'until', 'seq')
if not known[1] or tonumber(known[1]) < now then return 'no_instance' end
if call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then return 'full' end
local seq = text(math.max(now * 1000, tonumber(known[2] or '0') + 1))
call('HSET', KEYS[1], 'seq', seq)
call('XADD', KEYS[2], seq .. '-0', 'm', ARGV[3])
if call('PTTL', KEYS[2]) < 0 then
  -- The inbox expires with the record of its reader.
  local left_ms = call('PTTL', KEYS[1])
  if left_ms > 0 then call('PEXPIRE', KEYS[2], left_ms) end
end
return 'sent'
