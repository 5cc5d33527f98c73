"""A run's folder and files, which parent and ranks share."""
