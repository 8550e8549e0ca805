"""Thin scikit-learn classes that wire the layers together."""
