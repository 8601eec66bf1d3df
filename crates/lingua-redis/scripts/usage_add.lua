-- Adds what an instance has counted, once.
--
-- KEYS     counts last
-- ARGV     1 now, 2 number of the batch, 3… tenant counts
-- RETURNS  1 if it was added, 0 if this batch or a later one of the instance was added before
-- WHY ATOMIC  a batch that is sent twice counts once, wherever the first reply was lost
--
--   counts  hash: 'day tenant' → COUNTS; '#' → the day on which old days were last removed
--   last    number of the instance's last batch; expires after a day
local counts, last = KEYS[1], KEYS[2]
if tonumber(ARGV[2]) <= tonumber(call('GET', last) or '0') then return 0 end
call('SET', last, ARGV[2], 'PX', DAY_MS)
local day = floor(now / DAY_MS)
for i = 3, #ARGV, 2 do
  local field, sum = day .. ' ' .. ARGV[i], { unpack_from(COUNTS, ARGV[i + 1]) }
  local before = call('HGET', counts, field)
  if before then
    local known = { unpack_from(COUNTS, before) }
    for n = 1, USAGE_COUNTS do sum[n] = sum[n] + known[n] end
  end
  call('HSET', counts, field, pack(COUNTS, unpack(sum, 1, USAGE_COUNTS)))
end
if call('HGET', counts, '#') ~= text(day) then
  call('HSET', counts, '#', text(day))
  for _, field in ipairs(call('HKEYS', counts)) do
    local of = tonumber(string.match(field, '^%d+'))
    if of and of + USAGE_DAYS <= day then call('HDEL', counts, field) end
  end
end
return 1
