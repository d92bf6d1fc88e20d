"""Log formats, one file each: who wrapped the calls, and where request and response stand."""
