"""Observers: features that count, time and record updates. The rest of the loop knows none of them."""
