-- Lists open jobs of a shard whose owners are not alive.
--
-- KEYS     open
-- ARGV     1 now, 2 limit, 3… instances whose jobs are not orphans
-- RETURNS  owner id, repeated, by owner, then id
-- WHY ATOMIC  it only reads; job_claim compares again
local alive = {}
for i = 3, #ARGV do alive[ARGV[i]] = true end
local orphans, left, from = {}, tonumber(ARGV[2]), '-'
while left > 0 do
  -- The set is sorted by owner: jump from one to the next. '!' is the character after a space.
  local first = call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, 1)[1]
  if not first then break end
  local owner = string.match(first, '^%S+')
  if not alive[owner] then
    local found = call('ZRANGEBYLEX', KEYS[1], '[' .. first, '(' .. owner .. '!', 'LIMIT', 0, left)
    for i = 1, #found do
      orphans[#orphans + 1] = owner
      orphans[#orphans + 1] = string.sub(found[i], #owner + 2)
    end
    left = left - #found
  end
  from = '[' .. owner .. '!'
end
return orphans
