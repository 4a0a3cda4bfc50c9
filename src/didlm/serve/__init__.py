"""A model behind HTTP: an API, a page to watch it write, and all requests in one batch."""
