"""OmniQ: the contract, the hazards of published clients, and living together with them."""
