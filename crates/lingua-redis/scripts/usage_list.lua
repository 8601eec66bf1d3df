-- Lists what was counted on the days that are kept.
--
-- KEYS     counts
-- ARGV     1 now, 2 tenant, or '' for all
-- RETURNS  day tenant counts, repeated, in no order
-- WHY ATOMIC  it only reads; the clock is the server's
local today, list = floor(now / DAY_MS), {}
local function put(day, tenant, counts)
  list[#list + 1] = { day, tenant, counts }
end
if ARGV[2] ~= '' then
  for day = today - USAGE_DAYS + 1, today do
    local counts = call('HGET', KEYS[1], day .. ' ' .. ARGV[2])
    if counts then put(day, ARGV[2], counts) end
  end
  return list
end
local all = call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local day, tenant = string.match(all[i], '^(%d+) (.+)$')
  if day and tonumber(day) + USAGE_DAYS > today then put(tonumber(day), tenant, all[i + 1]) end
end
return list
