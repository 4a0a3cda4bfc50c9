"""Training: the loss, the optimiser and the loop."""
