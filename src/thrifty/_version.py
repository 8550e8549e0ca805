"""Version of the package, where modules may read it without importing the public names."""

__version__ = "0.3.0"
