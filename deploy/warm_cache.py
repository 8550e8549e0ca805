"""Compile what the gateway calls into NUMBA_CACHE_DIR, so that containers of the image start without compiling.

NUMBA_CACHE_DIR=/opt/numba python warm_cache.py
"""

import asyncio

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    DynaModGbrtClassifier,
    DynaModLinClassifier,
    StageOptions,
)
from thrifty.bundle import from_bytes, to_bytes
from thrifty.learners.dynamod import BoostedOptions
from thrifty.serve.app import create_app


def main() -> None:
    """Save, load, ask and start systems of every kind of stage and of stored trees."""
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(300, 4)), columns=list("abcd"))
    levels = numbers.assign(d=rng.choice(["red", "green", "blue"], 300))
    score = numbers["a"] + (levels["d"] == "red")
    small = {"stages": StageOptions(sizes=[(10, 3)]), "cv": 2, "random_state": 0}
    forest = RandomForestClassifier(5, max_depth=3, random_state=0)
    boosted = HistGradientBoostingClassifier(max_iter=5, random_state=0)
    for system, table, y in (
        (BudgetedClassifier(forest, **small), numbers, score > 0),
        (BudgetedClassifier(boosted, **small), numbers, np.digitize(score, [0.0, 1.0])),
        (BudgetedClassifier(**small), levels, score > 0),
        (BudgetedClassifier(**small), levels, np.digitize(score, [0.0, 1.0])),
        (BudgetedRegressor(**small), levels, score),
        (
            DynaModGbrtClassifier(LogisticRegression(), options=BoostedOptions(n_trees=5), random_state=0),
            numbers,
            score > 0,
        ),
        (DynaModLinClassifier(LogisticRegression(), random_state=0), numbers, score > 0),
    ):
        loaded = from_bytes(to_bytes(system.fit(table, y)))
        for n_rows in (1, 100):
            loaded.predict(table[:n_rows])
        asyncio.run(_start(create_app(loaded)))


async def _start(app) -> None:
    """Start an application, which answers rows of zeros before it is ready, and end it."""
    async with app.router.lifespan_context(app):
        pass


if __name__ == "__main__":
    main()
