"""Guards: features that inspect, stop, repeat or skip an update. The rest of the loop knows none of them."""
