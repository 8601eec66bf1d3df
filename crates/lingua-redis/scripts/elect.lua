-- Takes or renews the leadership.
--
-- KEYS     leader feed feed_head format
-- ARGV     1 now, 2 instance, 3 incarnation, 4 lease_ms, 5 changes to keep, 6 format
-- RETURNS  {leading (0 1), the leader, term, until_ms}
-- WHY ATOMIC  a leader whose lease has ended must not renew it after another one was elected
--
--   leader  hash: term, instance, incarnation, until; without an instance nobody leads
-- A server that has lost its data gets its format back.
call('SETNX', KEYS[4], ARGV[6])
local known = call('HMGET', KEYS[1], 'term', 'instance', 'incarnation', 'until')
local term, ends = tonumber(known[1] or '0'), tonumber(known[4] or '0')
local until_ms = now + tonumber(ARGV[4])
if known[2] and ends >= now then
  if known[2] ~= ARGV[2] or known[3] ~= ARGV[3] then return { 0, known[2], term, ends } end
  until_ms = math.max(until_ms, ends)
  call('HSET', KEYS[1], 'until', text(until_ms))
  return { 1, ARGV[2], term, until_ms }
end
term = math.max(now, term + 1)
call('HSET', KEYS[1], 'term', text(term), 'instance', ARGV[2], 'incarnation', ARGV[3],
  'until', text(until_ms))
push_change(KEYS[2], KEYS[3], ARGV[5], 'leader ' .. text(term))
return { 1, ARGV[2], term, until_ms }
