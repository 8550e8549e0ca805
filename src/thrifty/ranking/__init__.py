"""Ranking: documents of queries, how good an order of them is, and what it costs to find it."""
