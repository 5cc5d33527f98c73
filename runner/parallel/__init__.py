"""How ranks share the work: one file for each option of conf/parallel; rank/parallel.py is the plain case."""
