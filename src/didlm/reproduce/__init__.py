"""The experiments of the paper, experiment by experiment (docs/reproduce.md)."""
