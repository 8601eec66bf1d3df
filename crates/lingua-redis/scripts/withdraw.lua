-- Says that an instance leaves; its inbox goes with it.
--
-- KEYS     presence inbox
-- ARGV     1 now, 2 incarnation
-- RETURNS  1 if it was known, else 0
-- WHY ATOMIC  a process that leaves late must not remove its successor
if call('HGET', KEYS[1], 'incarnation') ~= ARGV[2] then return 0 end
call('DEL', KEYS[1], KEYS[2])
return 1
