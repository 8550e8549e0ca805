"""Prices of features and of the full model, and the bills of rows: groups, discounts, prices by row."""
