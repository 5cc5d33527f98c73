"""A trained model outside of its run: loaded, used for predictions, exported."""
