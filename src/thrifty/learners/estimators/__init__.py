"""Base classes of the scikit-learn estimators, and the checks of their input."""
