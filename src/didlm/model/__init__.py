"""The network and its named sizes."""
