"""The environment variables by which replicas find the others; named without importing torch."""

LIGHTHOUSE = "MANYHEADS_LIGHTHOUSE"  # its address
PLACE = "MANYHEADS_REPLICAS"  # the folder of states for replicas that have come back
HOST = "MANYHEADS_REPLICA_HOST"  # this machine's address, of several; without it nothing need be reached from others
