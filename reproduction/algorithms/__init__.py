"""Algorithm selection: scenarios of ASlib, rivals from ``asf``, closed gaps (``python -m reproduction selection``)."""
