"""`python -m didlm`, which is what torchrun starts."""

from didlm.cli import main

main()
