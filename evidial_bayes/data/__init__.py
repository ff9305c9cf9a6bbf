"""Codebook, tables and panels: what comes in at the door, checked once."""
