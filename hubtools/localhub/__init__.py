"""The embedded Hub: a server on loopback for rehearsal, CI and demos, with the real client in front."""
