-- Moves a job, if it stands where the caller thinks.
--
-- KEYS     job all open ended
-- ARGV     1 now, 2 'owner id', 3 stage and owner it has to have, 4 those that it gets, and the token, 5 grant or '-',
--          6 how long an ended job is remembered, 7 ended jobs at most, or -1 to leave the old ones alone this time,
--          8 outcome, if there is one
-- RETURNS  1 if it was moved, 0 if there is no such job, {state, attempt, owner} if it stands elsewhere, or
--          {'forget', id …} if it was moved and these records have to be removed
-- WHY ATOMIC  out of an end leads nothing, so a job has one, whatever races
local job, from, to, outcome = KEYS[1], ARGV[3], ARGV[4], ARGV[8]
local head = call('HGET', job, 'h')
if not head then return 0 end
local found, length = sub(head, 1, #to), #from
if found == to or sub(found, 1, length) ~= from then
  if is_old(head, tonumber(ARGV[6])) then return 0 end
  if found == to then return 1 end
  return { byte(head, 1), (unpack_from('<I4', head, 2)), sub(head, 7, standing_of(head)) }
end

local flags = byte(head, length + 33)
local recoverable, had_outcome = flags % 2, flags > 1
local kept = pack('<d', now) .. sub(head, length + 17, length + 32)
if outcome then
  call('HSET', job, 'h', to .. kept .. string.char(recoverable + 2) .. ARGV[5], 'o', outcome)
else
  call('HSET', job, 'h', to .. kept .. string.char(recoverable) .. ARGV[5])
  if had_outcome then call('HDEL', job, 'o') end
end
if byte(to, 1) < FIRST_END then return 1 end
local ended = KEYS[4]
call('PEXPIRE', job, ARGV[6])
call('ZREM', KEYS[3], ARGV[2])
call('RPUSH', ended, pack('<d', now) .. sub(ARGV[2], -ID_BYTES))
local ended_max = tonumber(ARGV[7])
if ended_max < 0 then return 1 end

-- Takes jobs that ended too long ago, or are too many, off the lists: a few at a time, because somebody waits. Records
-- of the former expire by themselves.
local oldest = now - tonumber(ARGV[6])
local first, over = call('LRANGE', ended, 0, FORGET_BATCH - 1), call('LLEN', ended) - ended_max
local gone, forget = {}, { 'forget' }
for i = 1, #first do
  local is_over = unpack_from('<d', first[i]) >= oldest
  if is_over and i > over then break end
  gone[i] = sub(first[i], -ID_BYTES)
  if is_over then forget[#forget + 1] = gone[i] end
end
if #gone > 0 then
  call('LTRIM', ended, #gone, -1)
  call('ZREM', KEYS[2], unpack(gone))
end
return forget
