-- Says which format the data has; data that is empty gets the format of the caller.
--
-- KEYS     format leader feed_head instances
-- ARGV     1 now, 2 the caller's format, 3 '1' if the caller has found its format here before
-- RETURNS  the format; 0 if there is data without one
-- WHY ATOMIC  of two programs that find no data, one writes its format and the other reads it
--
-- A server that has lost its data may get a leader again before it gets a format: a caller that
-- knows the store writes the format.
local known = call('GET', KEYS[1])
if known then return tonumber(known) or 0 end
if ARGV[3] ~= '1' and call('EXISTS', KEYS[2], KEYS[3], KEYS[4]) > 0 then return 0 end
call('SET', KEYS[1], ARGV[2])
return tonumber(ARGV[2])
