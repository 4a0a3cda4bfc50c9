"""From nothing to text: samplers."""
