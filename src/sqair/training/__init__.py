"""Training: curriculum, optimiser, checkpoints, run folders and the loop."""
