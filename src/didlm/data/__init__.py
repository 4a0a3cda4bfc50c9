"""Text in: documents, tokenizers, the embedded stories, and the loader."""
