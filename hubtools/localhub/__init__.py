"""The embedded Hub: a server on loopback that real clients publish to, for rehearsal and CI."""
