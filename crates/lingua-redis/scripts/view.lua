-- The whole state of a cell at one moment, as it is stored; Rust reads the records.
--
-- KEYS     hot cold fresh nodes leases due
-- ARGV     1 now
-- RETURNS  {now, hot, cold, fresh, nodes, leases, due with scores}
-- WHY ATOMIC  counts, nodes and leases of different moments would contradict each other
return {
  now, call('GET', KEYS[1]) or '', call('GET', KEYS[2]) or '', call('GET', KEYS[3]) or '',
  call('HGETALL', KEYS[4]), call('HGETALL', KEYS[5]), call('ZRANGE', KEYS[6], 0, -1, 'WITHSCORES'),
}
