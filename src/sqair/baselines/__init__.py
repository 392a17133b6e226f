"""The models that the paper compares SQAIR with."""
