-- Appends changes to the feed.
--
-- KEYS     feed feed_head
-- ARGV     1 now, 2 changes to keep, 3… changes
-- RETURNS  the number of the newest change
-- WHY ATOMIC  changes are numbered without gaps
local number
for i = 3, #ARGV do number = push_change(KEYS[1], KEYS[2], ARGV[2], ARGV[i]) end
return number
