"""What raw logs say about the teacher, what that is worth, and how a card may put it."""
