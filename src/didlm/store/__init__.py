"""The token store: text that was tokenized once, to be mapped into memory by training."""
