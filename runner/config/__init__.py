"""From the command line and Hydra's config to run.yaml: checked, completed and frozen once."""
