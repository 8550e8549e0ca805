"""Fit a system, export it for the device, and write readings for its sensors."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from thrifty import BudgetedClassifier, StageOptions, export, save

X, y = load_digits(return_X_y=True, as_frame=True)
X, X_new, y, _ = train_test_split(X, y >= 5, test_size=0.4, random_state=0)
full = RandomForestClassifier(100, random_state=0)
stages = StageOptions(5, [(20, 4)], structure="line")  # a device has one order of measurements
system = BudgetedClassifier(full, budget=12.0, stages=stages, random_state=0).fit(X, y)
exported = export(system, "model", leaves="int16")
np.asarray(X_new, dtype=np.float32).tofile("readings.bin")
save(system, "system.thrifty")
print(f"{exported.flash_bytes:,} bytes of flash, {exported.state_bytes} of RAM a session")
