"""Text as it comes: files, folders and datasets, read in blocks, into documents."""
