"""Uncertainty: resampling of participants, intervals and the split of variance."""
