-- What every script begins with. Rust puts it in front of each of them; a script of its own it is not.
--
-- ARGV[1] of every script is the time in ms, or 0 for the server's own clock: see clock.lua.

local call, floor = redis.call, math.floor
local pack, unpack_from = struct.pack, struct.unpack
