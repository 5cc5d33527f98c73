"""The part of parity that runs in a rank, and imports torch."""
