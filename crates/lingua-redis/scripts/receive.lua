-- Drops the messages up to a number and returns those after it.
--
-- KEYS     inbox
-- ARGV     1 now, 2 after, 3 limit
-- RETURNS  number message, repeated
-- WHY ATOMIC  one round trip both acknowledges and reads
local next_id = string.format('%d-0', ARGV[2] + 1)
call('XTRIM', KEYS[1], 'MINID', next_id)
local found = call('XRANGE', KEYS[1], next_id, '+', 'COUNT', ARGV[3])
local messages = {}
for i = 1, #found do
  messages[2 * i - 1] = string.match(found[i][1], '%d+')
  messages[2 * i] = found[i][2][2]
end
return messages
