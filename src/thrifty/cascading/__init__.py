"""Learning a cascade: order of purchases, size of stages, calibration, operating points; all out of fold."""
