-- The changes after a number.
--
-- KEYS     feed feed_head
-- ARGV     1 now, 2 after, 3 limit, 4 a random name for a feed that has none yet
-- RETURNS  {name, head, gap (0 1), changes}; another name is another feed, even if its numbers fit
-- WHY ATOMIC  the gap and the changes must be of one moment
call('HSETNX', KEYS[2], 'name', ARGV[4])
local known = call('HMGET', KEYS[2], 'n', 'name')
local head, after = tonumber(known[1] or '0'), tonumber(ARGV[2])
local oldest = head - call('XLEN', KEYS[1]) + 1
if after > head or after + 1 < oldest then return { known[2], head, 1, {} } end
local changes = {}
if after < head then
  local found = call('XRANGE', KEYS[1], text(after + 1) .. '-0', '+', 'COUNT', ARGV[3])
  for i = 1, #found do changes[i] = found[i][2][2] end
end
return { known[2], head, 0, changes }
