-- Ends expired leases and lists the nodes whose heartbeats have lapsed.
--
-- KEYS     hot cold fresh nodes leases due unpublished
-- ARGV     1 now, 2 limit
-- RETURNS  {expired, lapsed, unpublished}: expired is job attempt slot phase, lapsed is
--          'epoch name via' slot state for_ms, each repeated; unpublished are changes that an
--          instance did not publish before it died
-- WHY ATOMIC  a lease that is being renewed must not be ended because of its old deadline
local hot, cold, fresh, nodes, leases, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

local expired, lapsed = {}, {}
reap(hot, leases, due, tonumber(ARGV[2]), expired)

local times = call('GET', fresh) or ''
for slot = 0, #times / FRESH_BYTES - 1 do
  local until_ms = unpack_from('<d', times, slot * FRESH_BYTES + 1)
  if until_ms < now then
    local gate, _, _, _, present = unpack_from('<BBBBB', cold_record(cold, slot), COLD_GATE_AT)
    if present == 1 then
      local n = #lapsed
      lapsed[n + 1], lapsed[n + 2] = call('HGET', nodes, slot), slot
      lapsed[n + 3], lapsed[n + 4] = floor(gate / STATE_UNIT), now - until_ms
    end
  end
end
return { expired, lapsed, call('LRANGE', KEYS[7], 0, UNPUBLISHED_MAX - 1) }
