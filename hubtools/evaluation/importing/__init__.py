"""Results that other harnesses wrote, read into records of our own; nothing is made up."""
