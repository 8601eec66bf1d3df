-- Names open jobs of a shard whose owners are not alive.
--
-- KEYS     open owners
-- ARGV     1 now, 2 limit, 3… instances whose jobs are not orphans
-- RETURNS  owner id, again and again, by owner, then id
-- WHY ATOMIC  it is only a look; job_claim compares again
local alive = {}
for i = 3, #ARGV do alive[ARGV[i]] = true end
local dead = {}
for _, owner in ipairs(call('HKEYS', KEYS[2])) do
  if not alive[owner] then dead[#dead + 1] = owner end
end
local orphans, limit = {}, tonumber(ARGV[2])
for _, owner in ipairs(dead) do
  local found = call('ZRANGEBYLEX', KEYS[1], '[' .. owner .. ' ', '(' .. owner .. '!', 'LIMIT', 0, limit)
  for i = 1, #found do
    orphans[#orphans + 1] = owner
    orphans[#orphans + 1] = string.sub(found[i], #owner + 2)
  end
end
return orphans
