"""The methods, one file each: what they make of a text, never how it is costed."""
