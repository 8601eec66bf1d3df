-- Changes of nodes, for the scripts that make them.

-- Writes what a selection reads, for a node that is new or has another cost or limit.
local function write_hot(hot, slot, cost, used, max, flexibility, limit)
  if cost < 1 then cost = 1 elseif cost > COST_MS_MAX then cost = COST_MS_MAX end
  local room = (max - used) * FREE_UNIT + limit * LIMIT_UNIT + max * MAX_UNIT + flexibility
  call('SETRANGE', hot, HOT_HEAD + slot * HOT_BYTES,
    pack('<ddd', cost, floor(WEIGHT_UNIT / cost), room))
end

-- Ends the leases of a slot, of which there are `left`, except those in `kept` ('job attempt');
-- returns job, attempt of each. Reads the whole cell, so it is for rare events.
local function end_leases_of(hot, leases, due, slot, left, kept)
  local lost = {}
  if left == 0 then return lost end
  local all = call('HGETALL', leases)
  for i = 1, #all, 2 do
    if all[i] ~= LEASES_HEAD and all[i] ~= FILLER then
      local at, _, attempt = unpack_from(LEASE, all[i + 1])
      if at == slot then
        if not kept or not kept[all[i] .. ' ' .. attempt] then
          end_lease(hot, leases, due, all[i], slot)
          lost[#lost + 1] = all[i]
          lost[#lost + 1] = attempt
        end
        left = left - 1
        if left == 0 then break end
      end
    end
  end
  return lost
end

local function state_of(health, drain, offline)
  if offline == 1 then return OFFLINE end
  if drain == 1 then return DRAINING end
  return health
end

-- Puts a slot into sets or removes it from them; an empty set is deleted.
local function set_member(index, names, slot, member)
  local byte_at, bit_at, empty = floor(slot / 8) + 1, 2 ^ (slot % 8), string.rep('\0', SET_BYTES)
  for from = 1, #names, SETS_AT_ONCE do
    local upto = math.min(from + SETS_AT_ONCE - 1, #names)
    local sets = call('HMGET', index, unpack(names, from, upto))
    local write, drop = {}, {}
    for i = 1, upto - from + 1 do
      local set, name = sets[i] or empty, names[from + i - 1]
      local byte = string.byte(set, byte_at)
      if (floor(byte / bit_at) % 2 == 1) ~= member then
        byte = byte + (member and bit_at or -bit_at)
        set = string.sub(set, 1, byte_at - 1) .. string.char(byte) .. string.sub(set, byte_at + 1)
        if set == empty then
          drop[#drop + 1] = name
        else
          write[#write + 1] = name
          write[#write + 1] = set
        end
      end
    end
    if #write > 0 then call('HSET', index, unpack(write)) end
    if #drop > 0 then call('HDEL', index, unpack(drop)) end
  end
end

-- Updates the sets that follow from the gate.
local function set_gate(index, slot, gate)
  set_member(index, { '+there' }, slot, gate < OFFLINE * STATE_UNIT)
  set_member(index, { '+gone' }, slot, gate >= OFFLINE * STATE_UNIT)
  set_member(index, { '+open' }, slot, gate == READY * STATE_UNIT)
end

-- Records until when a node counts as alive. Says whether the slot had a time that is over.
local function set_fresh(hot, fresh, slot, until_ms)
  local at = slot * FRESH_BYTES
  local before = call('GETRANGE', fresh, at, at + FRESH_BYTES - 1)
  local was_over = #before == FRESH_BYTES and unpack_from('<d', before) < now
  call('SETRANGE', fresh, slot * FRESH_BYTES, pack('<d', until_ms))
  local all_fresh = call('GETRANGE', hot, 0, HOT_HEAD - 1)
  if #all_fresh < HOT_HEAD or unpack_from('<d', all_fresh) > until_ms then
    call('SETRANGE', hot, 0, pack('<d', until_ms))
  end
  return was_over
end

-- Records a change of a node in the cell itself. The caller publishes it on the feed, which may be
-- on another server, and then removes it here. If the caller dies in between, the next clean-up
-- publishes it.
local function node_change(unpublished, cell, slot, epoch, node)
  local change = 'node ' .. cell .. ' ' .. slot .. ' ' .. text(epoch) .. ' ' .. node
  call('RPUSH', unpublished, change)
  return change
end

local function name_of(entry)
  return string.match(entry, ' (%S+)')
end

-- Iterates over the names of the sets in a node's capabilities.
local function each_set(capabilities)
  return string.gmatch(string.match(capabilities, '|(.*)') or '', '%S+')
end
