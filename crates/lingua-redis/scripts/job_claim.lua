-- Gives an open job of a dead owner to its heir.
--
-- KEYS     job open
-- ARGV     1 now, 2 id, 3 dead owner, 4 heir
-- RETURNS  {head, specification, outcome or nil}, or {} if somebody was faster
-- WHY ATOMIC  of two heirs one gets the job, and the dead owner, should it come back, finds that it has lost it
local known = call('HMGET', KEYS[1], 'h', 's', 'o')
if not known[1] then
  -- The record was lost; the list must not name it for ever.
  call('ZREM', KEYS[2], ARGV[3] .. ' ' .. ARGV[2])
  return {}
end
local owner, state, attempt, _, created, _, rest = read_head(known[1])
if owner ~= ARGV[3] or state >= FIRST_END then return {} end
local head = table.concat({ ARGV[4], state, attempt, '-', created, text(now), rest }, ' ')
call('HSET', KEYS[1], 'h', head)
call('ZREM', KEYS[2], owner .. ' ' .. ARGV[2])
call('ZADD', KEYS[2], 0, ARGV[4] .. ' ' .. ARGV[2])
return { head, known[2], known[3] }
