"""What was tried already: an index of all runs below a folder, kept in the folder itself."""
