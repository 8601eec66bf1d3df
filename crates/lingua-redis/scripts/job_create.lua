-- Writes down a job that was accepted.
--
-- KEYS     job all open owners ended
-- ARGV     1 now, 2 id, 3 owner, 4 specification, 5 deadline or '-', 6 recoverable (0 1),
--          7 how long an ended job is remembered, 8 ended jobs at most, 9 open jobs at most
-- RETURNS  {'created', forgotten}, {'exists', head, specification, outcome or nil, forgotten} or {'limit'}
-- WHY ATOMIC  of two requests with one id, one creates the job and the other finds it
local job, all, open, owners, ended = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local record_ms = tonumber(ARGV[7])
local forgotten = forget_old(all, ended, record_ms, tonumber(ARGV[8]))
local known = call('HMGET', job, 'h', 's', 'o')
if known[1] then
  local _, state, _, _, _, updated = read_head(known[1])
  if not is_old(state, updated, record_ms) then
    return { 'exists', known[1], known[2], known[3], forgotten }
  end
  call('DEL', job)
  call('ZREM', ended, ARGV[2])
end
if call('ZCARD', open) >= tonumber(ARGV[9]) then return { 'limit' } end
local time = text(now)
local head = ARGV[3] .. ' 0 1 - ' .. time .. ' ' .. time .. ' ' .. ARGV[5] .. ' ' .. ARGV[6] .. ' -'
call('HSET', job, 'h', head, 's', ARGV[4])
call('ZADD', all, 0, ARGV[2])
open_job(open, owners, ARGV[3], ARGV[2])
return { 'created', forgotten }
