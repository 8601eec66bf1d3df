-- Takes the id of a job whose record is gone off the list.
--
-- KEYS     job all
-- ARGV     1 now, 2 id
-- RETURNS  nothing of interest
-- WHY ATOMIC  a job that is created again in between stays on the list
if call('EXISTS', KEYS[1]) == 0 then call('ZREM', KEYS[2], ARGV[2]) end
return 1
