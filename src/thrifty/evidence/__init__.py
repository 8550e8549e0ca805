"""Operating points: which threshold, which setting, at what price."""
