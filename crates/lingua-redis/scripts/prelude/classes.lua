-- How many nodes of a class are in each cell: for the scripts that assign and free places.
--
--   classes  hash, class → 3 bytes for each cell that has it: cell u16, nodes u8

-- Iterates over the cells of a class: position, cell, count.
local function each_cell(classes, class)
  local data, at = call('HGET', classes, class) or '', 1
  return function()
    if at < #data then
      local here = at
      local cell, count = unpack_from('<I2B', data, at)
      at = at + 3
      return here, cell, count
    end
  end
end

local function count_class(classes, class, cell, change)
  local data = call('HGET', classes, class) or ''
  for at, of, count in each_cell(classes, class) do
    if of == cell then
      local entry = ''
      if count + change > 0 then entry = pack('<I2B', cell, count + change) end
      data = string.sub(data, 1, at - 1) .. entry .. string.sub(data, at + 3)
      if data == '' then call('HDEL', classes, class) else call('HSET', classes, class, data) end
      return
    end
  end
  call('HSET', classes, class, data .. pack('<I2B', cell, change))
end

-- Counts the nodes of a token; '' stands for none.
local function count_owned(owned, owner, change)
  if owner ~= '' and call('HINCRBY', owned, owner, change) <= 0 then
    call('HDEL', owned, owner)
  end
end
