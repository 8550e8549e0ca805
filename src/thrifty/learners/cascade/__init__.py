"""The Budgeted* estimators and how they learn: order of purchases, stages, calibration, gates, operating points."""
