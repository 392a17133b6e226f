"""The paper's figures, each made from trained models by its name: see `sqair figures --help`.

A figure is a function of `Asked`, the models and data to make it from, that returns a matplotlib figure and the numbers
that it shows.
"""
