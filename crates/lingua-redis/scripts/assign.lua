-- Gives a node its place: the one that it had, or a new one.
--
-- KEYS     places counts taken classes epoch owned
-- ARGV     1 now, 2 node, 3 incarnation, 4 class, 5 the token that the node belongs to or '',
--          6 most nodes of that token or ''
-- RETURNS  {cell, slot, epoch}, {} if the fleet is full, {0} if the node belongs to another token,
--          {1} if the token has as many nodes as it may
-- WHY ATOMIC  two nodes must not get one slot, and epochs must rise over all nodes
--
--   places  hash, node → 'cell slot epoch incarnation class owner'; the owner may be ''
--   owned   hash, token → how many nodes belong to it
--   counts  string, one byte for each cell: how many nodes it has
--   taken   string, one set for each cell: which slots are taken
local places, counts, taken, classes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local node, incarnation, class, owner = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local function next_epoch()
  local epoch = math.max(now, tonumber(call('GET', KEYS[5]) or '0') + 1)
  call('SET', KEYS[5], text(epoch))
  return epoch
end

local function save(cell, slot, epoch)
  local place = { cell, slot, text(epoch), incarnation, class, owner }
  call('HSET', places, node, table.concat(place, ' '))
end

local known = call('HGET', places, node)
local cell, slot, epoch, old_incarnation, old_class, old_owner
if known then
  cell, slot, epoch, old_incarnation, old_class, old_owner =
    string.match(known, '(%d+) (%d+) (%d+) (%d+) (%d+) (.*)')
  if owner ~= '' and old_owner ~= '' and owner ~= old_owner then return { 0 } end
end
if owner ~= '' and owner ~= old_owner and ARGV[6] ~= ''
  and tonumber(call('HGET', KEYS[6], owner) or '0') >= tonumber(ARGV[6]) then
  return { 1 }
end

if known then
  epoch = tonumber(epoch)
  if old_incarnation ~= incarnation or old_owner ~= owner then
    epoch = next_epoch()
    count_owned(KEYS[6], old_owner, -1)
    count_owned(KEYS[6], owner, 1)
    if old_class ~= class then
      count_class(classes, old_class, tonumber(cell), -1)
      count_class(classes, class, tonumber(cell), 1)
    end
    save(cell, slot, epoch)
  end
  return { tonumber(cell), tonumber(slot), epoch }
end

-- A small class stays in one cell, so that one selection sees all of it; a popular one is spread.
-- Otherwise a node goes to the cell with the fewest nodes, and cells are opened long before the
-- others are full, so that cells stay alike.
local nodes_in = call('GET', counts) or ''
local cells = #nodes_in
local of_class, of_class_total = {}, 0
for _, cell, count in each_cell(classes, class) do
  of_class[cell] = count
  of_class_total = of_class_total + count
end
local spread = of_class_total >= SPREAD_FROM
local total, best, best_same, best_count, home, home_same, home_count = 0, nil, 0, 0, nil, 0, 0
for cell = 0, cells - 1 do
  local count = string.byte(nodes_in, cell + 1)
  total = total + count
  if count < CELL_NODES_MAX then
    local same = of_class[cell] or 0
    if same > home_same then home, home_same, home_count = cell, same, count end
    if not best or same < best_same or (same == best_same and count < best_count) then
      best, best_same, best_count = cell, same, count
    end
  end
end
if home and not spread then
  best, best_count = home, home_count
else
  local wanted = math.max(1, math.ceil((total + 1) / CELL_NODES_USUAL))
  if total >= SPREAD_FROM then wanted = math.max(2, wanted) end
  local is_alone = spread and best_same == of_class_total
  if cells < CELLS_MAX and (not best or cells < wanted or is_alone) then best = nil end
  if not best then
    if cells == CELLS_MAX then return {} end
    best, best_count = cells, 0
    call('SETRANGE', taken, best * SET_BYTES, string.rep('\0', SET_BYTES))
  end
end

local first = best * SET_BYTES
local mask = call('GETRANGE', taken, first, first + SET_BYTES - 1)
for i = 1, SET_BYTES do
  local byte = string.byte(mask, i)
  if byte ~= FULL_BYTE then
    local at = 0
    while floor(byte / 2 ^ at) % 2 == 1 do at = at + 1 end
    slot = (i - 1) * 8 + at
    call('SETRANGE', taken, first + i - 1, string.char(byte + 2 ^ at))
    break
  end
end
call('SETRANGE', counts, best, string.char(best_count + 1))
count_class(classes, class, best, 1)
count_owned(KEYS[6], owner, 1)
epoch = next_epoch()
save(best, slot, epoch)
return { best, slot, epoch }
