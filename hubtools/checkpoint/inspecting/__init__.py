"""What a directory or repo holds, what is wrong with it, and what it gives away."""
