"""Metrics: pure functions of one draw."""
