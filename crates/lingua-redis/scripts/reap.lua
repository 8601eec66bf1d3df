-- Ends leases whose time is over, and names the nodes that have fallen silent.
--
-- KEYS     hot cold fresh nodes leases due news
-- ARGV     1 now, 2 limit
-- RETURNS  {expired, lapsed, untold}: expired is job attempt slot phase, lapsed is 'epoch name' slot state for_ms, each
--          again and again; untold are changes that a dying instance did not tell
-- WHY ATOMIC  a lease that is being renewed must not be ended on the strength of its old deadline
local hot, cold, fresh, nodes, leases, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local UNTOLD_MAX = 64

local expired, lapsed = {}, {}
reap(hot, leases, due, tonumber(ARGV[2]), expired)

local times = call('GET', fresh) or ''
for slot = 0, #times / 8 - 1 do
  local until_ms = unpack_from('<d', times, slot * 8 + 1)
  if until_ms < now then
    local gate, _, _, _, present = unpack_from('<BBBBB', cold_record(cold, slot), 27)
    if present == 1 then
      local n = #lapsed
      lapsed[n + 1], lapsed[n + 2] = call('HGET', nodes, slot), slot
      lapsed[n + 3], lapsed[n + 4] = floor(gate / 8), now - until_ms
    end
  end
end
return { expired, lapsed, call('LRANGE', KEYS[7], 0, UNTOLD_MAX - 1) }
