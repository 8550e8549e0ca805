"""Routers between models: by the confidence of a cheap one, or learned from a log of who was right."""
