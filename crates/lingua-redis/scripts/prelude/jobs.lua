-- How jobs are stored, for the scripts on a shard of them.
--
-- job      hash: h (head), s (specification), o (outcome); expires an hour after its end
--          head: owner state attempt token created updated deadline recoverable grant, separated by spaces;
--          token, deadline and grant may be '-'. States are numbered as in the core; from 6 on it has ended.
-- all      sorted set of all job ids of the shard, all with score 0: listed in the order of ids
-- open     sorted set of 'owner id' of open jobs, all with score 0: listed by owner, then id
-- ended    sorted set of ended job ids by the time of their end
local FIRST_END = 6
local FORGET_BATCH = 64

local function read_head(head)
  local owner, state, attempt, token, created, updated, rest =
    string.match(head, '^(%S+) (%d+) (%d+) (%S+) (%d+) (%d+) (.*)$')
  return owner, tonumber(state), attempt, token, created, tonumber(updated), rest
end

-- Whether the record is there only because the server has not expired it yet.
local function is_old(state, updated, record_ms)
  return state >= FIRST_END and updated + record_ms < now
end

-- Takes jobs that ended too long ago, or are too many, off the lists: a few at a time, because somebody waits. Gives
-- those whose records have to be removed before their time.
local function forget_old(all, ended, record_ms, ended_max)
  local old = call('ZRANGEBYSCORE', ended, '-inf', '(' .. text(now - record_ms), 'LIMIT', 0, FORGET_BATCH)
  if #old > 0 then
    call('ZREM', ended, unpack(old))
    call('ZREM', all, unpack(old))
  end
  local over = call('ZCARD', ended) - ended_max
  if over <= 0 then return {} end
  old = call('ZRANGE', ended, 0, math.min(over, FORGET_BATCH) - 1)
  call('ZREM', ended, unpack(old))
  call('ZREM', all, unpack(old))
  return old
end
