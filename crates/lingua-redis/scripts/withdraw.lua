-- Removes an instance that stops, with its inbox.
--
-- KEYS     presence inbox
-- ARGV     1 now, 2 incarnation
-- RETURNS  1 if it was known, else 0
-- WHY ATOMIC  a process that stops late must not remove its successor
if call('HGET', KEYS[1], 'incarnation') ~= ARGV[2] then return 0 end
call('DEL', KEYS[1], KEYS[2])
return 1
