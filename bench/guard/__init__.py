"""The guard of speed: what one job costs in instructions, on each store, compared with figures kept here."""
