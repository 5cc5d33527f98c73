"""Other people's configs: which code they may name, and what the user has to trust explicitly."""
