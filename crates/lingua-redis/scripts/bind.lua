-- Binds a key to a node, if it is bound to the node that the caller expects.
--
-- KEYS     binding
-- ARGV     1 now, 2 the expected node or '', 3 node, 4 'cell slot epoch', 5 keep_ms
-- RETURNS  1 if it is bound to the node, or the present binding, '' if there is none
-- WHY ATOMIC  two jobs of one key may be sent at the same time
--
--   binding  text '1 until node cell slot epoch'; the first number is the version of the form
local known = call('GET', KEYS[1])
local until_ms, node, place = string.match(known or '', '^1 (%d+) (%S+) (.+)$')
if not node or tonumber(until_ms) < now then known, node = '', '' end
if node ~= ARGV[2] and node ~= ARGV[3] then return known end
local keep = tonumber(ARGV[5])
local refreshed = now + keep - floor(keep / BINDING_REFRESH_PART)
local stays = node == ARGV[3] and place == ARGV[4] and tonumber(until_ms) >= refreshed
if not stays then
  local value = '1 ' .. text(now + keep) .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
  call('SET', KEYS[1], value, 'PX', text(keep))
end
return 1
