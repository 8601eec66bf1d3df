-- Removes the record of a job that has ended.
--
-- KEYS     job all
-- ARGV     1 now, 2 id
-- RETURNS  1 if it was removed, 2 if the job has not ended, 0 if there is no such job
-- WHY ATOMIC  a job that another instance continues must not lose its record
local head = call('HGET', KEYS[1], 'h')
if head and byte(head, 1) < FIRST_END then return 2 end
local was_there = head and not is_old(head)
call('DEL', KEYS[1])
call('ZREM', KEYS[2], ARGV[2])
return was_there and 1 or 0
