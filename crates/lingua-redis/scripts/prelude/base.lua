-- The first part of every script. Names in capitals are constants: src/constants.rs defines them,
-- and Rust writes their values into the text when it loads a script.
--
-- ARGV[1] of every script is the time in ms, or 0 for the server's own clock: see clock.lua.

local call, floor = redis.call, math.floor
local pack, unpack_from = struct.pack, struct.unpack
