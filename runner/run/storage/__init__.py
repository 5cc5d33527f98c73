"""Object storage, such as S3: where it is, one process that talks to it, and what is kept of it on the local disk."""
