-- Records that an instance is alive.
--
-- KEYS     presence inbox
-- ARGV     1 now, 2 incarnation, 3 address, 4 lease_ms, 5 how long the record is kept after
--          the last announcement, in ms
-- RETURNS  {'present', unpublished (0 1)} or {'taken', until_ms}
-- WHY ATOMIC  two processes that start with one name must not both get it
--
--   presence  hash: incarnation, address, until, seq (last message), untold (1 until the change is
--             published)
local known = call('HMGET', KEYS[1], 'incarnation', 'until', 'untold')
local ends = tonumber(known[2] or '-1')
local alive, same = ends >= now, known[1] == ARGV[2]
if alive and not same then return { 'taken', ends } end
local unpublished = (known[3] == '1' or not alive or not same) and 1 or 0
call('HSET', KEYS[1], 'incarnation', ARGV[2], 'address', ARGV[3],
  'until', text(now + tonumber(ARGV[4])), 'untold', unpublished)
call('PEXPIRE', KEYS[1], ARGV[5])
call('PEXPIRE', KEYS[2], ARGV[5])
return { 'present', unpublished }
