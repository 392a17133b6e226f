"""Evaluation: bounds and counting, as DEFINITIONS of the documentation give them."""
