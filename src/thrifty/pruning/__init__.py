"""Pruning a random forest for prediction on a budget: the problem, two exact solvers, a certificate for both."""
