"""What a run would hold and send, by rank, found without its devices, its memory or its other ranks."""
