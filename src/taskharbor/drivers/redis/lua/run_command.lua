-- Run a command that must be written even on a full server, and return its reply.
-- needs: 10_keys
local now, cluster, home, command = unpack(cmsgpack.unpack(ARGV[1]))
even_if_full()
return call(unpack(command))
