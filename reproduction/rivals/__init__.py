"""The paper's rivals, with the same interface as its own algorithms."""
