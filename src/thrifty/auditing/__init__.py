"""Audit of a fitted model: what it spends per row, which columns it hardly needs, and what a cascade would save."""
