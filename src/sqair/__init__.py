"""SQAIR: finds, tracks, counts and simulates moving objects in video without labels (Kosiorek et al., 2018)."""

__version__ = "0.1.0"
