-- Gives a node its place: the one that it had, or a new one.
--
-- KEYS     places counts taken classes epoch
-- ARGV     1 now, 2 node, 3 incarnation, 4 class
-- RETURNS  {cell, slot, epoch} or {} if the fleet is full
-- WHY ATOMIC  two nodes must not get one slot, and epochs must rise over all nodes
--
--   places  hash, node → 'cell slot epoch incarnation class'
--   counts  string, one byte for each cell: how many nodes it has
--   taken   string, one set for each cell: which slots are taken
local places, counts, taken, classes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local node, incarnation, class = ARGV[2], ARGV[3], ARGV[4]

local function next_epoch()
  local epoch = math.max(now, tonumber(call('GET', KEYS[5]) or '0') + 1)
  call('SET', KEYS[5], text(epoch))
  return epoch
end

local function save(cell, slot, epoch)
  local place = { cell, slot, text(epoch), incarnation, class }
  call('HSET', places, node, table.concat(place, ' '))
end

local known = call('HGET', places, node)
if known then
  local cell, slot, epoch, old_incarnation, old_class =
    string.match(known, '(%d+) (%d+) (%d+) (%d+) (%d+)')
  epoch = tonumber(epoch)
  if old_incarnation ~= incarnation then
    epoch = next_epoch()
    if old_class ~= class then
      count_class(classes, old_class, tonumber(cell), -1)
      count_class(classes, class, tonumber(cell), 1)
    end
    save(cell, slot, epoch)
  end
  return { tonumber(cell), tonumber(slot), epoch }
end

-- A small class stays in one cell, so that one selection sees all of it; a popular one is spread.
local nodes_in = call('GET', counts) or ''
local cells = #nodes_in
local of_class, total = {}, 0
for _, cell, count in each_cell(classes, class) do
  of_class[cell] = count
  total = total + count
end
local spread = total >= SPREAD_FROM
local best, best_of_class, best_count
for cell = 0, cells - 1 do
  local count = string.byte(nodes_in, cell + 1)
  if count < CELL_NODES_MAX then
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
local can_open = cells < CELLS_MAX
if best and spread and can_open and best_of_class == total then best = nil end
if not best then
  if not can_open then return {} end
  best, best_count = cells, 0
  call('SETRANGE', taken, best * SET_BYTES, string.rep('\0', SET_BYTES))
end

local first = best * SET_BYTES
local mask = call('GETRANGE', taken, first, first + SET_BYTES - 1)
local slot
for i = 1, SET_BYTES do
  local byte = string.byte(mask, i)
  if byte ~= 255 then
    local at = 0
    while floor(byte / 2 ^ at) % 2 == 1 do at = at + 1 end
    slot = (i - 1) * 8 + at
    call('SETRANGE', taken, first + i - 1, string.char(byte + 2 ^ at))
    break
  end
end
call('SETRANGE', counts, best, string.char(best_count + 1))
count_class(classes, class, best, 1)
local epoch = next_epoch()
save(best, slot, epoch)
return { best, slot, epoch }
