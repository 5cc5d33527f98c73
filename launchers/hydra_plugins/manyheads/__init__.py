"""The namespace package in which Hydra looks for launchers of sweeps."""
