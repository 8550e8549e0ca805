"""``python -m reproduction selection``: closed gaps on scenarios of ASlib, official folds, features counted.

The closed gap is 0 for the single best algorithm of the scenario and 1 for the oracle, in PAR10. Finished scenarios are
kept as JSON, so that a run that was interrupted goes on.
"""

import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from reproduction.algorithms.methods import METHODS, Schedule
from reproduction.algorithms.scenario import Scenario, par10, read_scenario
from thrifty.errors import InvalidInputError


def selection(
    aslib: Annotated[
        Path, typer.Option(help="Folder with the scenarios of ASlib, as the repository has them.")
    ],
    scenarios: Annotated[
        list[str] | None,
        typer.Option(help="A scenario; repeat for several. By default, all whose features cost."),
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="A method; repeat for several. By default, all.")
    ] = None,
    folds: Annotated[int, typer.Option(help="Official folds to test on, the first ones.", min=1)] = 10,
    out: Annotated[Path, typer.Option(help="Folder for numbers.")] = Path("selection-out"),
) -> None:
    """Compare selectors of algorithms on scenarios of ASlib: closed gap in PAR10, features counted."""
    if not aslib.is_dir():
        raise InvalidInputError(f"{aslib} is no folder. Give the repository of ASlib as --aslib.")
    wanted = list(methods or METHODS)
    unknown = [name for name in wanted if name not in METHODS]
    if unknown:
        raise InvalidInputError(f"methods are {', '.join(METHODS)}; got {unknown[0]!r}.")
    names = list(
        scenarios or sorted(one.name for one in aslib.iterdir() if (one / "feature_costs.arff").exists())
    )
    out.mkdir(parents=True, exist_ok=True)
    rows = {name: compare(aslib / name, wanted, folds, out / f"{name}-{folds}.json") for name in names}
    console = Console(width=200)
    for title, part in (("closed gap", 0), ("seconds for features", 1)):
        table = Table("scenario", *wanted, title=title, title_justify="left")
        for name, found in rows.items():
            table.add_row(name, *(f"{found[method][part]:.3f}" for method in wanted))
        means = [np.mean([found[method][part] for found in rows.values()]) for method in wanted]
        table.add_row("mean", *(f"{mean:.3f}" for mean in means))
        console.print(table)


def compare(folder: Path, methods: list[str], n_folds: int, file: Path) -> dict[str, list[float]]:
    """Closed gap, seconds for features a row, and processor seconds of each method on a scenario; kept in a file."""
    found: dict[str, list[float]] = json.loads(file.read_text()) if file.exists() else {}
    lacking = [name for name in methods if name not in found]
    if not lacking:
        return found
    scenario = read_scenario(folder)
    folds = np.unique(scenario.fold)[:n_folds]
    tested = np.isin(scenario.fold, folds)
    scores = scenario.scores[tested]
    single, oracle = float(scores.mean(axis=0).min()), float(scores.min(axis=1).mean())
    for name in lacking:
        begin, n_rows = time.process_time(), len(scenario.fold)
        score, features = np.empty(n_rows), np.empty(n_rows)
        for fold in folds:
            learn, new = (np.flatnonzero(part) for part in (scenario.fold != fold, scenario.fold == fold))
            schedules = METHODS[name](scenario, learn, new)
            for row, schedule in zip(new.tolist(), schedules, strict=True):
                seconds, solved, features[row] = play(scenario, row, schedule)
                score[row] = par10(np.array(seconds), np.array(solved), scenario.cutoff)
        gap = (single - float(score[tested].mean())) / (single - oracle)
        found[name] = [gap, float(features[tested].mean()), time.process_time() - begin]
        file.write_text(json.dumps(found, indent=1))
    return found


def play(scenario: Scenario, row: int, schedule: Schedule) -> tuple[float, bool, float]:
    """Seconds that a row takes under a schedule, whether it is solved, and the seconds for features among them."""
    spent, features = 0.0, 0.0
    computed: set[str] = set()
    for item in schedule:
        if isinstance(item, str):
            for step in scenario.closure(item):
                if step in computed:
                    continue
                computed.add(step)
                features += float(scenario.feature_seconds.loc[:, step].iloc[row])
                if bool(scenario.presolved.loc[:, step].iloc[row]):
                    return spent + features, True, features
            continue
        algorithm, limit = item[0], min(item[1], scenario.cutoff - spent - features)
        taken = float(scenario.seconds.loc[:, algorithm].iloc[row])
        if bool(scenario.solved.loc[:, algorithm].iloc[row]) and taken <= limit:
            return spent + features + taken, True, features
        spent += max(min(taken, limit), 0.0)
    return spent + features, False, features
