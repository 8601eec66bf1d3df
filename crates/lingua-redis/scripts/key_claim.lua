-- Lets an idempotency key stand for a job, unless it stands for another one.
--
-- KEYS     keys claims
-- ARGV     1 now, 2 key, 3 job and digest of the request, 4 the job that it may be taken from, or
--          '', 5 how long a key is kept in ms, 6 keys at most
-- RETURNS  1 if the key stands for the job, or job and digest of the one that it stands for
-- WHY ATOMIC  of two requests with one key, one gets its job, and the other finds that job
--
--   keys    hash: key → time of the claim (double), job (16 bytes), digest of the request
--   claims  list: time of the claim (double), key; oldest first. The older entry of a key that was
--           claimed again is void
local keys, claims, key, keep = KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[5])
local oldest = now - keep
local function job_of(record) return string.sub(record, 1, KEY_JOB_BYTES) end

local known = call('HGET', keys, key)
if known and unpack_from('<d', known) >= oldest then
  local record = string.sub(known, 9)
  if job_of(record) == job_of(ARGV[3]) then return 1 end
  if job_of(record) ~= ARGV[4] then return record end
end
local time = pack('<d', now)
call('HSET', keys, key, time .. ARGV[3])
call('RPUSH', claims, time .. key)
call('PEXPIRE', keys, keep + 1000)
call('PEXPIRE', claims, keep + 1000)

-- Removes keys that are too old or too many, a few at a time, because a caller waits.
local first, excess = call('LRANGE', claims, 0, DROP_BATCH - 1), call('LLEN', claims) - ARGV[6]
local dropped = 0
for i = 1, #first do
  if unpack_from('<d', first[i]) >= oldest and i > excess then break end
  local old = string.sub(first[i], 9)
  local record = call('HGET', keys, old)
  if record and string.sub(record, 1, 8) == string.sub(first[i], 1, 8) then
    call('HDEL', keys, old)
  end
  dropped = i
end
if dropped > 0 then call('LTRIM', claims, dropped, -1) end
return 1
