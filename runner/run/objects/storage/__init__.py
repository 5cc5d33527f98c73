"""Object storage, such as S3: its addresses, the process that talks to it, and a cache on the local disk."""
