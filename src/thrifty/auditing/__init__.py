"""Audit of a fitted model: what it costs per row, which columns it hardly needs, and what a cascade would save."""
