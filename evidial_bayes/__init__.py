"""Audit of label predictions against a posterior over evidence states, learned from judges' votes."""

__version__ = "0.1.0"
