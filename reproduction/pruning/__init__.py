"""Pruning of a random forest on a budget: the problem, two exact solvers, a certificate for both."""
