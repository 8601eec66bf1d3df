-- The change feed: a stream with the ids 1-0, 2-0, 3-0 and so on.

-- Appends a change; drops the oldest beyond `max`.
local function push_change(feed, feed_head, max, change)
  local number = call('HINCRBY', feed_head, 'n', 1)
  call('XADD', feed, 'MAXLEN', max, number .. '-0', 'c', change)
  return number
end
