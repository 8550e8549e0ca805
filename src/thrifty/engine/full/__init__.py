"""The full model (f0): fitted, wrapped and called, and its out-of-fold outputs on the training rows."""
