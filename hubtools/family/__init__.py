"""What the user declares: the family manifest, its members and their names."""
