"""A trained model outside of its run: loaded, asked about images, exported."""
