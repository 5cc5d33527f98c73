"""A rank: assembled from the run config, it trains, evaluates and writes."""
