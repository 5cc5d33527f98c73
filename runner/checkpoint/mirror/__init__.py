"""A run's folder in object storage: its copy, which a marker makes valid, and how it comes back."""
