"""Copies of run folders in object storage, which a marker makes valid: uploading and fetching them."""
