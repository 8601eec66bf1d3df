-- Frees the place of a node that is gone for good.
--
-- KEYS     places counts taken classes owned
-- ARGV     1 now, 2 node, 3 epoch
-- RETURNS  1 if this epoch held it, else 0
-- WHY ATOMIC  a late clean-up must not free the place of the node's next incarnation
local places, counts, taken, classes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local known = call('HGET', places, ARGV[2])
if not known then return 0 end
local cell, slot, epoch, class, owner =
  string.match(known, '(%d+) (%d+) (%d+) %d+ (%d+) (.*)')
if epoch ~= ARGV[3] then return 0 end
cell, slot = tonumber(cell), tonumber(slot)
call('HDEL', places, ARGV[2])
local at = cell * SET_BYTES + floor(slot / 8)
local byte = string.byte(call('GETRANGE', taken, at, at))
call('SETRANGE', taken, at, string.char(byte - 2 ^ (slot % 8)))
local count = string.byte(call('GETRANGE', counts, cell, cell))
call('SETRANGE', counts, cell, string.char(count - 1))
count_class(classes, class, cell, -1)
count_owned(KEYS[5], owner, -1)
return 1
