"""Pairs (g, f1) of one family each: how they are fitted, how they score."""
