"""Looking after many runs: finding, listing, showing, comparing and removing them, without torch."""
