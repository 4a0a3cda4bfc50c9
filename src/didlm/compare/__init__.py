"""Models side by side: the same figures for each, as tables, plots and one page."""
