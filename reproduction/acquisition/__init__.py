"""Rivals that choose the next feature by row, of our own: GDFS, DIME, AACO and naive Bayes, on AFABench's data."""
