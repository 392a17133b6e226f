"""Evaluation: bounds and counting, over any number of particles in bounded memory."""
