"""A user's own options: nothing of this project is changed for them."""
