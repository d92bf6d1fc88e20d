"""How one question becomes an answer: in a single call, or by searching over several turns."""
