"""Response formats of model APIs, one file each."""
