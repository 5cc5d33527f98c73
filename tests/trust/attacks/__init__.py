"""Attacks, each a module whose ``attack(scene)`` raises AssertionError if it succeeds; ``test_attacks.py`` runs all."""
