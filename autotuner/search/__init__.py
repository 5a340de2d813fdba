"""Which layouts exist, how promising each is by estimate, and which one to measure next."""
