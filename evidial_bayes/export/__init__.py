"""Outputs: tables, figures and console text, written atomically."""
