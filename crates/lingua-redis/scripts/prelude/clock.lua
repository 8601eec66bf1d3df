-- What every script begins with. Rust puts it in front of each of them; a script of its own it is not.
--
-- ARGV[1] of every script is the time in ms, or 0 for the server's own clock.

local call, floor = redis.call, math.floor
local pack, unpack_from = struct.pack, struct.unpack

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end

-- Whole numbers as text; Lua's own conversion loses digits above 10^14.
local function text(number)
  return string.format('%.0f', number)
end
