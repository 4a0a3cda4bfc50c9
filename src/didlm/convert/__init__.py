"""Weights of public research code, read into ordinary models: see docs/converting.md."""
