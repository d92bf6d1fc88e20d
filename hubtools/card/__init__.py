"""Cards: facts become a view, a view becomes text, and rules say what a card may claim."""
