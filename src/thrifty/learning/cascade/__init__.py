"""Learning a cascade: order of purchases, size of stages, calibration, gates; all out of fold."""
