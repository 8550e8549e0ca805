"""Rivals that choose the next feature by row, in networks of our own: GDFS, DIME and AACO, on AFABench's data."""
