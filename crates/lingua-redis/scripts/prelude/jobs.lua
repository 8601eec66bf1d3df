-- How jobs are stored, for the scripts on a shard of them.
--
-- job      hash: h (head), s (specification), o (outcome); expires an hour after its end
--          head: stage (state u8, attempt u32) and owner (length u8, name); token of the last step (8 bytes),
--          updated, created (doubles), deadline (u64), flags u8 (1 recoverable, 2 has an outcome), grant as text.
--          It begins with what a step compares, and the caller knows how that has to look: so a step that is right
--          takes nothing apart. States are numbered as in the core; from 6 on it has ended.
-- all      sorted set of all job ids of the shard, all with score 0: listed in the order of ids
-- open     sorted set of 'owner id' of open jobs, all with score 0: listed by owner, then id
-- ended    list of ended jobs in the order of their ends: time (double), id
local FIRST_END, ID_BYTES = 6, 32
local FORGET_BATCH = 64
local byte, sub = string.byte, string.sub

-- How long the part with stage and owner is.
local function standing_of(head)
  return 6 + byte(head, 6)
end

-- Whether the record is there only because the server has not expired it yet.
local function is_old(head, record_ms)
  return byte(head, 1) >= FIRST_END and unpack_from('<d', head, standing_of(head) + 9) + record_ms < now
end
