"""Prediction: rows walk through stages to the full model and buy features on the way."""
