"""How good is a model? Likelihood bounds on texts it has not seen, and figures about its own."""
