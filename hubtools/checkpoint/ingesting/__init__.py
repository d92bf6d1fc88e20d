"""Taking in what a sharded trainer saved: one ordinary checkpoint comes out."""
