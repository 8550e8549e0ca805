"""Routers: between two models by confidence or from a log, and among many models with prices."""
