"""Watching a text grow: in the terminal, as a page, as an animation."""
