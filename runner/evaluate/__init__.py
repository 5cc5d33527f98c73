"""A past run's weights on its own data or on other data, in a run of their own."""
