-- Ends leases whose time is over, and names the nodes that have fallen silent.
--
-- KEYS     hot cold nodes leases due news
-- ARGV     1 now, 2 limit
-- RETURNS  {expired, lapsed, untold}: expired is job attempt slot phase, lapsed is node slot epoch state for_ms, each
--          again and again; untold are changes that a dying instance did not tell
-- WHY ATOMIC  a lease that is being renewed must not be ended on the strength of its old deadline
local hot, cold, nodes, leases, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local UNTOLD_MAX = 64

local expired, lapsed = {}, {}
reap(hot, leases, due, tonumber(ARGV[2]), expired)

local data = call('GET', hot) or ''
for slot = 0, (#data - HOT_HEAD) / HOT_BYTES - 1 do
  local _, _, max, _, gate, fresh_until = unpack_from(HOT, data, HOT_HEAD + slot * HOT_BYTES + 1)
  if max > 0 and fresh_until < now then
    local n = #lapsed
    lapsed[n + 1], lapsed[n + 2] = call('HGET', nodes, slot), slot
    lapsed[n + 3] = unpack_from('<d', record(cold, 0, COLD_BYTES, slot))
    lapsed[n + 4], lapsed[n + 5] = floor(gate / 8), now - fresh_until
  end
end
return { expired, lapsed, call('LRANGE', KEYS[6], 0, UNTOLD_MAX - 1) }
