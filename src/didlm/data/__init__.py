"""From token ids to batches: tokenizers, corpora, the loader; and the embedded stories."""
