-- How jobs are stored, for the scripts on a shard of them.
--
--   job    hash: h (head), s (specification), o (outcome); expires when the job is not kept any
--          longer: an hour after its end, or earlier
--   all    sorted set of all job ids of the shard, all with score 0: listed in the order of ids
--   open   sorted set of 'owner id' of open jobs, all with score 0: listed by owner, then id
--   ended  list of the ended jobs of a group (a tenant), in the order of their ends: time (double),
--          bytes of all jobs that ended before (double), bytes of this one (u32), id. The bytes of
--          all jobs in the list follow from its ends, so that no counter can drift
--
-- A head has these fields, one behind the other. Offsets after the owner count from its end:
--
--   state u8 | attempt u32 | owner length u8 | owner | token 8 bytes | updated double
--   1        | 2           | OWNER_LENGTH_AT |       | 1             | 9
--
--   created double | kept until double | deadline u64 | label 8 bytes | flags u8 | grant as text
--   CREATED_AT     | KEPT_AT           | 33           | 41            | FLAGS_AT | 50
--
-- The head begins with what a step compares, and the caller knows those bytes: a step that is right
-- parses nothing. Flags: RECOVERABLE, HAS_OUTCOME. States are numbered as in the core; from
-- FIRST_END on the job has ended.
local byte, sub = string.byte, string.sub

-- The position of the owner's last byte.
local function owner_end(head)
  return OWNER_LENGTH_AT + byte(head, OWNER_LENGTH_AT)
end

-- Whether the record is still there only because the server has not expired it yet.
local function is_old(head)
  return byte(head, 1) >= FIRST_END
    and unpack_from('<d', head, owner_end(head) + KEPT_AT) < now
end
