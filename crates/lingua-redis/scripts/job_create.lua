-- Writes the record of a job that was accepted.
--
-- KEYS     job all open
-- ARGV     1 now, 2 'owner id', 3 the head up to the token, 4 the head from the deadline on,
--          5 specification, 6 open jobs at most
-- RETURNS  1 if it was created, 0 if there are too many, or {head, specification, outcome or nil}
-- WHY ATOMIC  of two requests with one id, one creates the job and the other finds it
local job, open = KEYS[1], KEYS[3]
local known = call('HGET', job, 'h')
if known then
  if not is_old(known) then return call('HMGET', job, 'h', 's', 'o') end
  call('DEL', job)
end
if call('ZCARD', open) >= tonumber(ARGV[6]) then return 0 end
call('HSET', job, 'h', ARGV[3] .. pack('<ddd', now, now, 0) .. ARGV[4], 's', ARGV[5])
call('ZADD', KEYS[2], '0', sub(ARGV[2], -ID_BYTES))
call('ZADD', open, '0', ARGV[2])
return 1
