"""Methods that choose the next feature by row, beside ``BudgetedClassifier``, on AFABench's data.

GDFS, DIME, AACO and naive Bayes buy just the budget for every row, as in AFABench; and, as DIME's authors propose,
until an answer is so sure that rows buy the budget in the mean. The cascade spends the budget in the mean. Both means
are those of the test rows, which needs no labels. Networks learn from 60 % of the rows and choose with 20 %; cascade
and naive Bayes have both.
"""

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import process_time
from typing import Any

import numpy as np

from reproduction.acquisition.data import SETS, AcquisitionSet
from reproduction.datasets import Split
from reproduction.experiments.experiment import Outcome, Run
from reproduction.experiments.fits import Job, Kept, key_of
from thrifty import BudgetedClassifier, Prices, hold_budget
from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError

__all__ = ["run", "stop_when_confident"]

NAME = "acquisition"


@dataclass(frozen=True, kw_only=True)
class AcquisitionSettings:
    """Settings of the comparison.

    Attributes
    ----------
    thinned : str
        Sentence on what the authors' programs do and what is run here; printed on the page.
    data_sets, splits : tuple
        Names in ``SETS``, and the number of splits, or draws, of each.
    n_steps, max_epochs : int
        Purchases that networks learn to make, and their longest training.
    explored : tuple of float
        Shares of random purchases while DIME learns, one training after the other.
    max_test_rows : int
        Test rows that are looked at.
    scaled : bool
        Whether columns have unit variance, or are centred alone.
    """

    thinned: str
    data_sets: tuple[str, ...]
    splits: tuple[int, ...]
    n_steps: int
    max_epochs: int
    explored: tuple[float, ...]
    max_test_rows: int
    scaled: bool

    def __post_init__(self) -> None:
        if not set(self.data_sets) <= SETS.keys() or len(self.splits) != len(self.data_sets):
            raise InvalidInputError(
                f"data_sets must be among {', '.join(SETS)}, and splits one number for each; "
                f"got {self.data_sets} and {self.splits}."
            )


def run(how: Run) -> Outcome:
    """Fit every method on every split and return the table."""
    settings = how.settings(AcquisitionSettings, NAME)
    if importlib.util.find_spec("torch") is None:
        raise InvalidInputError(
            "acquisition needs torch; install it with `pip install 'thrifty[acquisition]'`."
        )
    cells = [
        (name, seed) for name, n in zip(settings.data_sets, settings.splits, strict=True) for seed in range(n)
    ]
    learning = replace(settings, thinned="", data_sets=(), splits=())
    jobs = [
        Job(key_of(measure, {"cell": cell, "settings": learning}), measure, (*cell, how.data, settings))
        for cell in cells
    ]
    kept = Kept(how.out / f"{NAME}.cells", {"experiment": NAME})
    found = kept.run(jobs, n_jobs=how.n_jobs, progress=how.progress, what="fitting")
    numbers = {
        name: [one for cell, one in zip(cells, found, strict=True) if cell[0] == name]
        for name in settings.data_sets
    }
    outcome = Outcome(
        NAME,
        "The next feature by row: GDFS, DIME and AACO beside the cascade",
        ["data", "method", "small budget", "middle", "large", "seconds"],
        [row for name, splits in numbers.items() for row in _rows(name, splits)],
        {"splits": numbers},
        [f"Sweep: {settings.thinned}", *(_differences(name, splits) for name, splits in numbers.items())],
    )
    outcome.write(how.out)
    return outcome


def _rows(name: str, splits: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Mean and spread of each method at each budget, the best mean in bold, and the mean seconds of processor."""
    case = SETS[name]
    rows: list[list[str]] = []
    what = f"{name}, {case.metric} at {' / '.join(map(str, case.budgets))}, splits: {len(splits)}"
    quality = {method: np.array([one[method][0] for one in splits]) for method in splits[0]}
    best = np.max([values.mean(axis=0) for values in quality.values()], axis=0)
    for method, values in quality.items():
        cells = [
            f"**{mean:.3f}** ± {spread:.3f}" if mean == top else f"{mean:.3f} ± {spread:.3f}"
            for mean, spread, top in zip(values.mean(axis=0), values.std(axis=0), best, strict=True)
        ]
        seconds = np.mean([one[method][1] for one in splits])
        rows.append(["" if rows else what, method, *cells, f"{seconds:.0f}"])
    return rows


def _differences(name: str, splits: Sequence[dict[str, Any]]) -> str:
    """By how many points each method leads the cascade on the same splits, with standard errors."""
    quality = {method: np.array([one[method][0] for one in splits]) for method in splits[0]}
    told = []
    for method in [one for one in quality if one != "cascade"]:
        ahead = 100 * (quality[method] - quality["cascade"])
        cells = [f"{mean:+.1f}" for mean in ahead.mean(axis=0)]
        if len(ahead) > 1:
            errors = ahead.std(axis=0, ddof=1) / np.sqrt(len(ahead))
            cells = [f"{cell} ± {error:.1f}" for cell, error in zip(cells, errors, strict=True)]
        told.append(f"{method} {', '.join(cells)}")
    return f"{name}, points ahead of the cascade: {'; '.join(told)}."


def measure(name: str, seed: int, data: str | None, settings: AcquisitionSettings) -> dict[str, Any]:
    """Quality at each budget, and seconds of processor, of every method on one split."""
    case = SETS[name]
    split = case.split(seed, data, max_test_rows=settings.max_test_rows, scaled=settings.scaled)
    return {"cascade": _cascade(case, split, seed), **_rivals(case, split, seed, settings)}


def _cascade(case: AcquisitionSet, split: Split, seed: int) -> tuple[list[float], float]:
    began = process_time()
    X, y = np.concatenate([split.X_train, split.X_val]), np.concatenate([split.y_train, split.y_val])
    groups = case.groups(X.shape[1])
    prices = Prices(1.0 / np.bincount(groups)[groups], groups=groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # budgets at the edge of what can be spent
        model = BudgetedClassifier(prices=prices, random_state=seed).fit(X, y)
        held = [hold_budget(model, split.X_test, budget) for budget in case.budgets]
        found = [case.quality(one.predict_proba(split.X_test), split.y_test) for one in held]
    return found, process_time() - began


def _rivals(case: AcquisitionSet, split: Split, seed: int, settings: AcquisitionSettings) -> dict[str, Any]:
    import torch

    from reproduction.acquisition.greedy import fit_greedy
    from reproduction.acquisition.masked import Task, as_tensor, pretrain, probabilities_by_step
    from reproduction.acquisition.mutual_information import fit_mutual_information
    from reproduction.acquisition.naive_bayes import fit_naive_bayes
    from reproduction.acquisition.oracle import fit_oracle

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    began = process_time()
    task = Task.of(split, case.groups(split.X_train.shape[1]))
    predictor = pretrain(task, 4 * settings.max_epochs)
    shared = process_time() - began
    n_steps, max_epochs = min(settings.n_steps, len(task.columns)), settings.max_epochs
    fits: dict[str, Any] = {
        "GDFS": lambda: fit_greedy(task, predictor, n_steps, max_epochs),
        "DIME": lambda: fit_mutual_information(task, predictor, n_steps, max_epochs, settings.explored),
        "AACO": lambda: fit_oracle(task, predictor),
        "naive Bayes": lambda: fit_naive_bayes(task),
    }
    found: dict[str, Any] = {}
    for method, fit in fits.items():
        began = process_time()
        by_step = probabilities_by_step(task, fit(), as_tensor(split.X_test), n_steps).numpy()
        seconds = process_time() - began + (0.0 if method == "naive Bayes" else shared)
        hard = [case.quality(by_step[budget], split.y_test) for budget in case.budgets]
        sure = [case.quality(stop_when_confident(by_step, budget), split.y_test) for budget in case.budgets]
        found |= {method: (hard, seconds), f"{method}, confident stop": (sure, seconds)}
    return found


def stop_when_confident(by_step: Floats, budget: float) -> Floats:
    """Probabilities of rows that buy until their largest one reaches a level, the highest that the budget allows.

    ``by_step`` holds those after 0, 1, ... purchases; ``budget`` is the mean number of purchases of these rows.
    """
    reached = np.maximum.accumulate(by_step.max(axis=2), axis=0)[:-1]
    rows = np.arange(by_step.shape[1])
    # A row makes a purchase at each step at which it has not reached the level: the budget counts such steps.
    levels = np.append(np.sort(reached, axis=None), np.inf)
    level = levels[min(int(budget * len(rows)), reached.size)]
    return np.asarray(by_step[(reached < level).sum(axis=0), rows])
