"""What users write about prices, checked, and what rows pay: groups, discounts, prices that differ by row."""
