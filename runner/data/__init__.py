"""The data sets of conf/data, a file or package each, and how their samples become batches."""
