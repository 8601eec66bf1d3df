-- Gives an open job of a dead owner to its heir.
--
-- KEYS     job open
-- ARGV     1 now, 2 id, 3 dead owner, 4 heir
-- RETURNS  {head, specification, outcome or nil}, or {} if another instance was faster
-- WHY ATOMIC  one of two heirs gets the job, and the dead owner, if it comes back, has lost it
local known = call('HMGET', KEYS[1], 'h', 's', 'o')
local head = known[1]
if not head then
  -- The record was lost; remove its id from the list.
  call('ZREM', KEYS[2], ARGV[3] .. ' ' .. ARGV[2])
  return {}
end
local length = owner_end(head)
local owner = sub(head, OWNER_LENGTH_AT + 1, length)
if owner ~= ARGV[3] or byte(head, 1) >= FIRST_END then return {} end
-- An empty token: a late step of the dead owner must not count as done.
local stage, token = sub(head, 1, OWNER_LENGTH_AT - 1), string.rep('\0', 8)
head = stage .. string.char(#ARGV[4]) .. ARGV[4] .. token .. pack('<d', now)
  .. sub(head, length + CREATED_AT)
call('HSET', KEYS[1], 'h', head)
call('ZREM', KEYS[2], ARGV[3] .. ' ' .. ARGV[2])
call('ZADD', KEYS[2], '0', ARGV[4] .. ' ' .. ARGV[2])
return { head, known[2], known[3] }
