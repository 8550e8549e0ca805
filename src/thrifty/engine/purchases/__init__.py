"""Purchases: readers that buy what they read, sources of features, receipts."""
