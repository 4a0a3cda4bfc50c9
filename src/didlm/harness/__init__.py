"""Models in EleutherAI's evaluation harness (`pip install 'didlm[lm-eval]'`)."""
