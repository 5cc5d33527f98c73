"""Finds, summarizes, selects, shows and continues runs, without torch; shared by several commands."""
