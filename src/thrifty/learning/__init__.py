"""How the parts of a chain are learned."""
