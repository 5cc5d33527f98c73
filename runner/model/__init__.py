"""The models: one file for each option of conf/model."""
