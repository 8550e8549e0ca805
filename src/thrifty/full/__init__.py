"""The full model (f0) in every form a user has it, and its answers on rows it has not seen."""
