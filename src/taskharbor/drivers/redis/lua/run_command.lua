-- Run a command that must be written even on a full server, and return its reply.
-- needs: 10_keys
local command = unpack(ARGS, 4)
even_if_full()
return call(unpack(command))
