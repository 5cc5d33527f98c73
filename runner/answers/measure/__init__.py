"""Measuring runs, as several answers need it: their subject, ledger, rounds, parts, steps compared and memory."""
