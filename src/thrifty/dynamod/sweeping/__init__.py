"""Many settings on one set of data: fitted in parallel, kept in a file, reduced to their efficient points."""
