"""What a model of somebody else spends per row, what it could do without, and what a cascade would save."""
