-- Gives an open job of a dead owner to its heir.
--
-- KEYS     job open
-- ARGV     1 now, 2 id, 3 dead owner, 4 heir
-- RETURNS  {head, specification, outcome or nil}, or {} if somebody was faster
-- WHY ATOMIC  of two heirs one gets the job, and the dead owner, should it come back, finds that it has lost it
local known = call('HMGET', KEYS[1], 'h', 's', 'o')
local head = known[1]
if not head then
  -- The record was lost; the list must not name it for ever.
  call('ZREM', KEYS[2], ARGV[3] .. ' ' .. ARGV[2])
  return {}
end
local length = standing_of(head)
if sub(head, 7, length) ~= ARGV[3] or byte(head, 1) >= FIRST_END then return {} end
-- Nobody's token: a step of the dead owner that comes late is not taken for made.
local standing = sub(head, 1, 5) .. string.char(#ARGV[4]) .. ARGV[4] .. string.rep('\0', 8)
head = standing .. pack('<d', now) .. sub(head, length + 17)
call('HSET', KEYS[1], 'h', head)
call('ZREM', KEYS[2], ARGV[3] .. ' ' .. ARGV[2])
call('ZADD', KEYS[2], '0', ARGV[4] .. ' ' .. ARGV[2])
return { head, known[2], known[3] }
