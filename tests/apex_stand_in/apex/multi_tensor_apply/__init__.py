"""Its presence tells NVIDIA's Apex from another package of that name."""
