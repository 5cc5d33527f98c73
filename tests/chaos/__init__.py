"""Commands are hurt at random moments and resumed; what they leave is compared with undisturbed ones."""
