-- Moves a job, if it stands where the caller thinks.
--
-- KEYS     job all open ended
-- ARGV     1 now, 2 id, 3 owner, 4 state and attempt it has to have, 5 state, 6 attempt it gets, 7 token,
--          8 grant or '-', 9 outcome, 10 whether there is one (0 1), 11 how long an ended job is remembered,
--          12 ended jobs at most
-- RETURNS  {'advanced', forgotten}, {'conflict', state, attempt, owner} or {'missing'}
-- WHY ATOMIC  out of an end leads nothing, so a job has one, whatever races
local job, all, open, ended = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local record_ms = tonumber(ARGV[11])
local head = call('HGET', job, 'h')
if not head then return { 'missing' } end
local owner, state, attempt, token, created, updated, rest = read_head(head)
if is_old(state, updated, record_ms) then return { 'missing' } end
if token == ARGV[7] and state == tonumber(ARGV[5]) and attempt == ARGV[6] and owner == ARGV[3] then
  return { 'advanced', {} }
end
if state .. ' ' .. attempt ~= ARGV[4] or owner ~= ARGV[3] then
  return { 'conflict', state, tonumber(attempt), owner }
end
local kept = string.match(rest, '^%S+ %S+')
head = table.concat({ owner, ARGV[5], ARGV[6], ARGV[7], created, text(now), kept, ARGV[8] }, ' ')
if ARGV[10] == '1' then
  call('HSET', job, 'h', head, 'o', ARGV[9])
else
  call('HSET', job, 'h', head)
  call('HDEL', job, 'o')
end
if tonumber(ARGV[5]) < FIRST_END then return { 'advanced', {} } end
call('PEXPIRE', job, record_ms)
call('ZREM', open, owner .. ' ' .. ARGV[2])
call('ZADD', ended, now, ARGV[2])
return { 'advanced', forget_old(all, ended, record_ms, tonumber(ARGV[12])) }
