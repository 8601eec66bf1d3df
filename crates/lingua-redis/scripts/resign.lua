-- Gives up the leadership.
--
-- KEYS     leader
-- ARGV     1 now, 2 instance, 3 term
-- RETURNS  1 if it was held, else 0
-- WHY ATOMIC  an instance can end its own term only
local known = call('HMGET', KEYS[1], 'term', 'instance', 'until')
if known[1] ~= ARGV[3] or known[2] ~= ARGV[2] or tonumber(known[3]) < now then return 0 end
call('HDEL', KEYS[1], 'instance', 'incarnation', 'until')
return 1
