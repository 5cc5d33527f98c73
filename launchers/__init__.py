"""The parent's side: how the ranks of one run are started, watched and ended. Imports no torch."""
