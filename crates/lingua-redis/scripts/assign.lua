-- Gives a node its place: the one it had, or a new one.
--
-- KEYS     places counts taken classes epoch
-- ARGV     1 now, 2 node, 3 incarnation, 4 class, 5 nodes in a cell at most, 6 cells at most,
--          7 from how many nodes on a class is spread
-- RETURNS  {cell, slot, epoch} or {} if the fleet is full
-- WHY ATOMIC  two nodes must not get one slot, and epochs must rise over all nodes
--
-- places   hash, node → 'cell slot epoch incarnation class'
-- counts   string, one byte for each cell: how many nodes it has
-- taken    string, 16 bytes for each cell: which slots are taken
-- classes  hash, class → 3 bytes for each cell that has it: cell u16, nodes u8
local places, counts, taken, classes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local node, incarnation, class = ARGV[2], ARGV[3], ARGV[4]
local cell_max, cells_max, spread_from = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local function next_epoch()
  local epoch = math.max(now, tonumber(call('GET', KEYS[5]) or '0') + 1)
  call('SET', KEYS[5], text(epoch))
  return epoch
end

local function save(cell, slot, epoch)
  call('HSET', places, node, cell .. ' ' .. slot .. ' ' .. text(epoch) .. ' ' .. incarnation .. ' ' .. class)
end

local known = call('HGET', places, node)
if known then
  local cell, slot, epoch, life, old_class = string.match(known, '(%d+) (%d+) (%d+) (%d+) (%d+)')
  epoch = tonumber(epoch)
  if life ~= incarnation then
    epoch = next_epoch()
    if old_class ~= class then
      count_class(classes, old_class, tonumber(cell), -1)
      count_class(classes, class, tonumber(cell), 1)
    end
    save(cell, slot, epoch)
  end
  return { tonumber(cell), tonumber(slot), epoch }
end

-- A small class stays together, so that one choice sees all of it; a popular one is spread.
local nodes_in = call('GET', counts) or ''
local cells = #nodes_in
local of_class, total = {}, 0
for _, cell, count in each_class(classes, class) do
  of_class[cell] = count
  total = total + count
end
local spread = total >= spread_from
local best, best_of_class, best_count
for cell = 0, cells - 1 do
  local count = string.byte(nodes_in, cell + 1)
  if count < cell_max then
    local same = of_class[cell] or 0
    local better
    if not best then
      better = true
    elseif same ~= best_of_class then
      better = (same < best_of_class) == spread
    else
      better = count > best_count
    end
    if better then best, best_of_class, best_count = cell, same, count end
  end
end
local can_open = cells < cells_max
if best and spread and can_open and best_of_class == total then best = nil end
if not best then
  if not can_open then return {} end
  best, best_count = cells, 0
  call('SETRANGE', taken, best * 16, string.rep('\0', 16))
end

local mask = call('GETRANGE', taken, best * 16, best * 16 + 15)
local slot
for i = 1, 16 do
  local byte = string.byte(mask, i)
  if byte ~= 255 then
    local at = 0
    while floor(byte / 2 ^ at) % 2 == 1 do at = at + 1 end
    slot = (i - 1) * 8 + at
    call('SETRANGE', taken, best * 16 + i - 1, string.char(byte + 2 ^ at))
    break
  end
end
call('SETRANGE', counts, best, string.char(best_count + 1))
count_class(classes, class, best, 1)
local epoch = next_epoch()
save(best, slot, epoch)
return { best, slot, epoch }
