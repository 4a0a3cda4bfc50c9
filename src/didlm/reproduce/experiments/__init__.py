"""One file for each table and figure of the paper: its rows, its columns, its figures."""
