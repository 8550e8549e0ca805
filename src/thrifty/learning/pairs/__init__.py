"""Pairs (g, f1) of the paper, one family each, and the alternation that learns them."""
