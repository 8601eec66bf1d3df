-- Writes down a job that was accepted.
--
-- KEYS     job all open ended
-- ARGV     1 now, 2 id, 3 owner, 4 specification, 5 deadline or '-', 6 recoverable (0 1),
--          7 how long an ended job is remembered, 8 open jobs at most
-- RETURNS  {'created'}, {'exists', head, specification, outcome or nil} or {'limit'}
-- WHY ATOMIC  of two requests with one id, one creates the job and the other finds it
local job, all, open, ended = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local known = call('HMGET', job, 'h', 's', 'o')
if known[1] then
  local _, state, _, _, _, updated = read_head(known[1])
  if not is_old(state, updated, tonumber(ARGV[7])) then return { 'exists', known[1], known[2], known[3] } end
  call('DEL', job)
  call('ZREM', ended, ARGV[2])
end
if call('ZCARD', open) >= tonumber(ARGV[8]) then return { 'limit' } end
local time = text(now)
local head = ARGV[3] .. ' 0 1 - ' .. time .. ' ' .. time .. ' ' .. ARGV[5] .. ' ' .. ARGV[6] .. ' -'
call('HSET', job, 'h', head, 's', ARGV[4])
call('ZADD', all, 0, ARGV[2])
call('ZADD', open, 0, ARGV[3] .. ' ' .. ARGV[2])
return { 'created' }
