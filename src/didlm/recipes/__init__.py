"""Named settings of training runs, in TOML."""
