"""Tests of samplers that decide which training samples an epoch has."""
