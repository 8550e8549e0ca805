"""
Prices of groups: which of six sensors does a machine need?
===========================================================

A machine has six sensors. Reading one takes time and power, and gives four numbers at once: mean, spread, peak and
slope of the last second. So a purchase is a sensor, not a number. Which faults need which sensors?
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import train_test_split

from thrifty import BudgetedClassifier, Prices, StageOptions

SENSORS = ["current", "temperature", "vibration", "sound", "pressure", "flow"]
STATISTICS = ["mean", "spread", "peak", "slope"]
# What a fault changes: the sensor, the statistic, and by how much.
SIGNS = {
    "well": [],
    "worn bearing": [("vibration", "spread", 2.5), ("sound", "peak", 1.5), ("current", "mean", 0.8)],
    "blocked filter": [("pressure", "mean", 2.5), ("flow", "mean", -2.0), ("current", "mean", 1.2)],
    "leak": [("flow", "slope", -2.5), ("pressure", "slope", -1.5)],
}

rng = np.random.default_rng(0)
columns = [f"{sensor} {statistic}" for sensor in SENSORS for statistic in STATISTICS]
y = rng.choice(list(SIGNS), 2000, p=[0.7, 0.1, 0.1, 0.1])
X = pd.DataFrame(rng.normal(size=(2000, len(columns))), columns=columns)
for fault, signs in SIGNS.items():
    for sensor, statistic, shift in signs:
        X.loc[y == fault, f"{sensor} {statistic}"] += shift
X, X_test, y, y_test = train_test_split(X, y, test_size=800, random_state=0)

# %%
# ``groups`` names the purchase that each column comes with; columns of one group have one price.

sensor_of = {column: column.split()[0] for column in columns}
price = {"current": 1.0, "temperature": 1.0, "vibration": 4.0, "sound": 3.0, "pressure": 2.0, "flow": 2.0}
clf = BudgetedClassifier(
    ExtraTreesClassifier(200, random_state=0),
    prices=Prices({column: price[sensor] for column, sensor in sensor_of.items()}, groups=sensor_of),
    stages=StageOptions(sizes=[(30, 3)]),
    cv=3,
    random_state=0,
).fit(X, y)
print(f"all sensors cost {sum(price.values()):g}; bought first: {X.columns[clf.features_[0]].split()[0]}")

# %%
# Which sensors are read for which fault? The receipt of ``buy`` says for every cell whether it was bought.

there = clf.at(budget=5)
bought = there.buy(X_test.to_dict("series")).bought[:, :: len(STATISTICS)]
share = np.array([bought[y_test == fault].mean(axis=0) for fault in SIGNS])
print(f"accuracy {there.score(X_test, y_test):.3f} at {there.cost(X_test).mean():.2f}")
print(f"temperature, which no fault changes, is read for {bought[:, 1].mean():.0%} of rows")

fig, ax = plt.subplots(figsize=(6.4, 3.6))
image = ax.imshow(share, vmin=0, vmax=1, cmap="Blues", aspect="auto")
ax.set_xticks(range(len(SENSORS)), [f"{name}\n({price[name]:g})" for name in SENSORS], fontsize=9)
ax.set_yticks(range(len(SIGNS)), list(SIGNS))
for row, column in np.ndindex(share.shape):
    colour = "white" if share[row, column] > 0.6 else "black"
    ax.text(column, row, f"{share[row, column]:.0%}", ha="center", va="center", color=colour)
ax.set_title("Share of rows for which a sensor is read")
fig.tight_layout()
