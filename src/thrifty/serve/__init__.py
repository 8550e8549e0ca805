"""The gateway: a system behind HTTP, in front of a full model that may be far away."""
