"""What an option of the run config declares about itself, found without torch."""
