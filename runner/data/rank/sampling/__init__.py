"""Samplers that decide which training samples an epoch has, in which order: ``data.sampler``."""
