"""Tests of ``manyheads judge --log``."""
