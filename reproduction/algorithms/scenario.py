"""Scenarios of ASlib as arrays: runs, features in groups that cost seconds, folds; and scores of choices (PAR10)."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError

PENALTY = 10
"""A run that does not end in time counts as so many times the cutoff."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """One scenario of ASlib; instances that were repeated are averaged.

    Attributes
    ----------
    name : str
        Its folder.
    cutoff : float
        Seconds that an instance may take.
    X : DataFrame of shape (n_instances, n_features)
        Features, NaN where their step failed.
    groups : dict of str to str
        The step that delivers each feature.
    requires : dict of str to tuple of str
        Steps that a step needs first.
    feature_seconds : DataFrame of shape (n_instances, n_steps)
        What each step took.
    presolved : DataFrame of shape (n_instances, n_steps), bool
        Instances that a step has solved.
    seconds : DataFrame of shape (n_instances, n_algorithms)
        What each run took, at most the cutoff.
    solved : DataFrame of the same shape, bool
        Runs that ended in time with an answer.
    fold : ndarray of shape (n_instances,)
        Official fold of each instance.
    """

    name: str
    cutoff: float
    X: pd.DataFrame
    groups: dict[str, str]
    requires: dict[str, tuple[str, ...]]
    feature_seconds: pd.DataFrame
    presolved: pd.DataFrame
    seconds: pd.DataFrame
    solved: pd.DataFrame
    fold: Ints

    def closure(self, step: str) -> list[str]:
        """The steps that a step requires, and itself, in the order in which they are computed."""
        found: list[str] = []
        for before in self.requires.get(step, ()):
            found += [one for one in self.closure(before) if one not in found]
        return [*found, step]

    def provided(self, step: str) -> list[str]:
        """Features of a step."""
        return [name for name, own in self.groups.items() if own == step]

    @property
    def scores(self) -> Floats:
        """Penalised seconds of each algorithm, features not counted."""
        return np.where(self.solved, self.seconds, PENALTY * self.cutoff)


def par10(seconds: Floats, solved: Bools, cutoff: float) -> Floats:
    """Penalised seconds of rows that took ``seconds`` in all."""
    return np.where(solved & (seconds <= cutoff), seconds, PENALTY * cutoff)


def read_scenario(folder: Path) -> Scenario:
    """Read a scenario from its folder."""
    described: Any = _description(folder / "description.txt")
    cutoff = float(described["algorithm_cutoff_time"])
    steps: dict[str, dict[str, list[str]]] = described["feature_steps"]
    runs = _table(folder / "algorithm_runs.arff")
    measure = runs.columns[3]
    runs["solved"] = (runs["runstatus"] == "ok") & (runs[measure].astype(float) <= cutoff)
    runs["seconds"] = np.where(runs["solved"], runs[measure].astype(float).clip(upper=cutoff), cutoff)
    wide = {
        name: runs.pivot_table(index="instance_id", columns="algorithm", values=name, aggfunc=how)
        for name, how in (("seconds", "mean"), ("solved", "min"))
    }
    instances = wide["seconds"].index
    X = _numbers(folder / "feature_values.arff").reindex(instances)
    groups = {feature: step for step, parts in steps.items() for feature in parts.get("provides", [])}
    names = list(steps)
    costs, status = folder / "feature_costs.arff", folder / "feature_runstatus.arff"
    seconds = pd.DataFrame(0.0, instances, names)
    if costs.exists():
        seconds = _numbers(costs).reindex(index=instances, columns=names).fillna(0.0).clip(lower=0.0)
    presolved = pd.DataFrame(False, instances, names)
    if status.exists():
        states = _table(status).drop_duplicates("instance_id").set_index("instance_id").reindex(instances)
        for step in [name for name in names if name in states]:
            presolved[step] = (states[step] == "presolved").to_numpy()
            failed = ~states[step].isin(["ok", "presolved"]).to_numpy()
            X.loc[failed, [name for name in X.columns if groups.get(name) == step]] = np.nan
    X = X[[name for name in X.columns if name in groups]]
    cv = _table(folder / "cv.arff").drop_duplicates("instance_id").set_index("instance_id")
    return Scenario(
        folder.name,
        cutoff,
        X,
        {name: groups[name] for name in X.columns},
        {step: tuple(parts.get("requires", [])) for step, parts in steps.items()},
        seconds,
        presolved,
        wide["seconds"],
        wide["solved"].astype(bool),
        cv["fold"].astype(float).astype(int).reindex(instances).to_numpy(),
    )


def _table(path: Path) -> pd.DataFrame:
    """Cells of an ARFF file, as texts."""
    names: list[str] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            word = line.strip().lower()
            if word.startswith("@attribute"):
                rest = line.strip().split(None, 1)[1]
                quote = rest[0] if rest[0] in "'\"" else None
                names.append(rest[1:].split(quote)[0] if quote else rest.split(None, 1)[0])
            elif word.startswith("@data"):
                break
        else:
            raise InvalidInputError(f"{path} is no ARFF file: it has no line @data.")
        rows = [
            row for row in csv.reader(lines, quotechar="'", skipinitialspace=True) if len(row) == len(names)
        ]
    return pd.DataFrame([[cell.strip().strip('"') for cell in row] for row in rows], columns=names)


def _numbers(path: Path) -> pd.DataFrame:
    """Numbers of each instance, averaged over repetitions; NaN where there is a question mark."""
    table = _table(path).set_index("instance_id").drop(columns="repetition", errors="ignore")
    numbers = table.apply(pd.to_numeric, errors="coerce").replace([np.inf, -np.inf], np.nan)
    return numbers.groupby(level=0).mean()


def _description(path: Path) -> dict[str, object]:
    """What ``description.txt`` says, in the part of YAML that ASlib uses: names, and lists below them."""
    root: dict[str, object] = {}
    stack: list[tuple[int, object]] = [(-1, root)]
    lines = [
        line.rstrip().expandtabs(4)
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    lines = [line for line in lines if line.strip() and not line.strip().startswith("#")]
    for place, line in enumerate(lines):
        indent, text = len(line) - len(line.lstrip()), line.strip()
        is_item = text.startswith("- ")
        while stack[-1][0] >= indent and not (
            is_item and stack[-1][0] == indent and isinstance(stack[-1][1], list)
        ):
            stack.pop()
        holder = stack[-1][1]
        if is_item:
            if isinstance(holder, list):
                holder.append(text[2:].strip().strip("'\""))
            continue
        name, _, value = text.partition(": ") if ": " in text else (text.rstrip(":"), "", "")
        if not isinstance(holder, dict):
            continue
        name, value = name.strip().strip("'\""), value.strip()
        if value:
            holder[name] = value.strip("'\"")
            continue
        following = lines[place + 1] if place + 1 < len(lines) else ""
        opens_list = following.strip().startswith("- ")
        below: object = [] if opens_list else {}
        holder[name] = below
        # Items of a list may stand at the indent of its name.
        stack.append((indent, below))
    return root
