"""Routers between two models: by the confidence of the cheap one, or learned from a log of which was right."""
