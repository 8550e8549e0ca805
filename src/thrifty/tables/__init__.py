"""Tables as people keep them, and what the command line makes of them."""
