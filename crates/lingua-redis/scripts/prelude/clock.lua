-- The time, for the scripts that need it.

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end

-- A whole number as text; Lua's own conversion loses digits above 10^14.
local function text(number)
  return string.format('%d', number)
end
