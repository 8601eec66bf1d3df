-- Moves a job, if its stage and owner are what the caller expects.
--
-- KEYS     job all open ended
-- ARGV     1 now, 2 'owner id', 3 the expected start of the head (stage and owner), 4 the new start
--          (stage, owner, token), 5 grant or '-', 6 how long an ended job is kept in ms,
--          7 ended jobs of the group at most, or -1 to leave the old ones alone this time,
--          8 their bytes at most, 9 how long this job is kept in ms if it ends,
--          10 what replaces the specification, or '', 11 outcome, if any
-- RETURNS  1 if it was moved, 0 if there is no such job, {state, attempt, owner} on a conflict, or
--          {'drop', id …} if it was moved and these records have to be removed
-- WHY ATOMIC  no step leads out of an end, so that a job has one end, whatever races
--
-- The layout of a head is in prelude/jobs.lua. The expected start ends where the owner ends, so the
-- other fields are at fixed distances behind it.
local job, expected, new_start, outcome = KEYS[1], ARGV[3], ARGV[4], ARGV[11]
local head = call('HGET', job, 'h')
if not head then return 0 end
local start, owner_at_end = sub(head, 1, #new_start), #expected
if start == new_start or sub(start, 1, owner_at_end) ~= expected then
  if is_old(head) then return 0 end
  if start == new_start then return 1 end
  local owner = sub(head, OWNER_LENGTH_AT + 1, owner_end(head))
  return { byte(head, 1), (unpack_from('<I4', head, 2)), owner }
end

local flags = byte(head, owner_at_end + FLAGS_AT)
local recoverable, had_outcome = flags % HAS_OUTCOME, flags >= HAS_OUTCOME
local is_end, kept_until = byte(new_start, 1) >= FIRST_END, 0
if is_end then kept_until = now + tonumber(ARGV[9]) end
-- Created, deadline and label stay.
local times = pack('<d', now) .. sub(head, owner_at_end + CREATED_AT, owner_at_end + KEPT_AT - 1)
  .. pack('<d', kept_until) .. sub(head, owner_at_end + KEPT_AT + 8, owner_at_end + FLAGS_AT - 1)
if outcome then
  local new_flags = string.char(recoverable + HAS_OUTCOME)
  call('HSET', job, 'h', new_start .. times .. new_flags .. ARGV[5], 'o', outcome)
else
  call('HSET', job, 'h', new_start .. times .. string.char(recoverable) .. ARGV[5])
  if had_outcome then call('HDEL', job, 'o') end
end
if ARGV[10] ~= '' then call('HSET', job, 's', ARGV[10]) end
if not is_end then return 1 end
local ended = KEYS[4]
call('PEXPIRE', job, ARGV[9])
call('ZREM', KEYS[3], ARGV[2])
local bytes = RECORD_BYTES + call('HSTRLEN', job, 's') + #(outcome or '')
local before, last = 0, call('LINDEX', ended, -1)
if last then
  local _, last_before, last_bytes = unpack_from(ENDED, last)
  before = last_before + last_bytes
end
call('RPUSH', ended, pack(ENDED, now, before, bytes) .. sub(ARGV[2], -ID_BYTES))
local ended_max = tonumber(ARGV[7])
if ended_max < 0 then return 1 end

-- Removes jobs that are too old, too many or too large together from the lists, a few at a time,
-- because a caller waits. The records of those that are too old expire by themselves.
local oldest, keep_from = now - tonumber(ARGV[6]), before + bytes - tonumber(ARGV[8])
local first, excess = call('LRANGE', ended, 0, DROP_BATCH - 1), call('LLEN', ended) - ended_max
-- All of it is too old by then; a group without new ends leaves no list behind.
call('PEXPIRE', ended, text(2 * tonumber(ARGV[6])))
local gone, drop = {}, { 'drop' }
for i = 1, #first do
  local ended_ms, at = unpack_from(ENDED, first[i])
  local is_recent = ended_ms >= oldest
  if is_recent and i > excess and at >= keep_from then break end
  gone[i] = sub(first[i], -ID_BYTES)
  if is_recent then drop[#drop + 1] = gone[i] end
end
if #gone > 0 then
  call('LTRIM', ended, #gone, -1)
  call('ZREM', KEYS[2], unpack(gone))
end
return drop
