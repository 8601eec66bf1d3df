-- Publishes the next version of the pool table.
--
-- KEYS     leader table feed feed_head
-- ARGV     1 now, 2 instance, 3 term, 4 version that it replaces, 5 table, 6 changes to keep
-- RETURNS  {'published', version}, {'not_leader'} or {'conflict', version}
-- WHY ATOMIC  term and version are compared when the table is written: only the leader publishes
--
--   table  hash: version, term, published, table; they are written and removed together
local known = call('HMGET', KEYS[1], 'term', 'instance', 'until')
if known[1] ~= ARGV[3] or known[2] ~= ARGV[2] or tonumber(known[3]) < now then
  return { 'not_leader' }
end
local version = tonumber(call('HGET', KEYS[2], 'version') or '0')
if version ~= tonumber(ARGV[4]) then return { 'conflict', version } end
version = version + 1
call('HSET', KEYS[2], 'version', version, 'term', ARGV[3], 'published', text(now),
  'table', ARGV[5])
push_change(KEYS[3], KEYS[4], ARGV[6], 'table ' .. version)
return { 'published', version }
