"""How ranks share the work: one file for each option of conf/parallel; base.py is the plain case."""
