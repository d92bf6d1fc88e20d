"""Raw API logs: which files, what lines, which records. Provenance and dataset both read them."""
