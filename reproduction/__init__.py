"""The paper's experiments, their data and the rivals that only they need; see README.md.

Run from the root of a clone: no installation of thrifty contains this package.
"""
