"""Evidence: operating points of a system, how they are chosen, compared and certified on held-out rows."""
