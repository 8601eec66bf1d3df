-- Writes the record of a session, if its version is what the caller expects.
--
-- KEYS     session
-- ARGV     1 now, 2 the version that it replaces, 3 body, 4 keep_ms (0 removes it)
-- RETURNS  {1} if it is written, {0, version} if the version differs
-- WHY ATOMIC  two instances may want to take over one session
--
--   session  hash: version, body, until
local known = call('HMGET', KEYS[1], 'version', 'until', 'body')
local version, replaces, keep = tonumber(known[1] or '0'), tonumber(ARGV[2]), tonumber(ARGV[4])
if tonumber(known[2] or '-1') < now then version = 0 end
local is_repeated = version == replaces + 1 and known[3] == ARGV[3]
if version ~= replaces and not is_repeated then return { 0, version } end
if keep == 0 then
  call('DEL', KEYS[1])
else
  call('HSET', KEYS[1], 'version', text(replaces + 1), 'body', ARGV[3], 'until', text(now + keep))
  call('PEXPIRE', KEYS[1], text(keep + 1000))
end
return { 1 }
