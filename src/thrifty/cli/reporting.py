"""From a table system and labelled rows to the facts of a report."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.exceptions import InvalidInputError
from thrifty.report.collect import collect_facts
from thrifty.report.facts import Facts
from thrifty.tables.files import listed
from thrifty.tables.full_models import KINDS
from thrifty.tables.system import TableSystem

__all__ = ["facts_of", "report_numbers"]


def facts_of(
    system: TableSystem, frame: Any, by: Sequence[str], title: str, unit: str
) -> tuple[Facts, dict[str, Any]]:
    """What the page says, and how the chosen point did on these rows."""
    labels = system.schema.labels(frame)
    unknown = [name for name in by if name not in frame.columns]
    if unknown:
        raise InvalidInputError(
            f"--by names {listed(unknown)}, not a column of the table, which has {listed(frame.columns)}."
        )
    X = system.table(frame)
    there = system.on(X, labels)
    measured = _measured(system, X, there.outcomes[system.chosen])
    about = system.about
    facts = collect_facts(
        there,
        labels,
        chosen=system.frontier,
        prices=system.prices,
        feature_names=system.schema.names,
        slices={name: frame[name].astype("object").map(str).to_numpy() for name in by},
        certificate=system.certificate,
        title=title,
        full_name=KINDS.get(about.full, about.full),
        unit=unit,
        seed=about.seed,
        date=dt.date.today().isoformat(),
        notes=_notes(system, measured),
    )
    return facts, measured


def _measured(system: TableSystem, X: Any, outcomes: Any) -> dict[str, Any]:
    """How the chosen point did: by the routes that the rows really take, ties settled."""
    sent = system.system.route(X) == 1
    right = np.where(sent, outcomes.go_right, outcomes.stop_right)
    return {
        "rows": len(sent),
        "accuracy": float(right.mean()),
        "cost": float(np.where(sent, outcomes.go_cost, outcomes.stop_cost).mean()),
        "share_sent": float(sent.mean()),
        "full_accuracy": float(np.mean(outcomes.go_right)),
    }


def report_numbers(system: TableSystem, measured: dict[str, Any], written: Sequence[Path]) -> dict[str, Any]:
    """The chosen point on the new rows beside what was promised."""
    promise = system.promise
    return {
        "files": [str(path) for path in written],
        **measured,
        "promised": {
            "accuracy": promise.accuracy,
            "interval": list(promise.interval(measured["rows"])),
            "cost": promise.cost,
        },
    }


def _notes(system: TableSystem, measured: dict[str, Any]) -> dict[str, str]:
    about, promise = system.about, system.promise
    low, high = promise.interval(measured["rows"])
    asked = f"budget {about.budget:g}" if about.budget is not None else f"max loss {about.max_loss:g}"
    return {
        "asked for": asked,
        "chosen system": f"accuracy {measured['accuracy']:.4f} at {measured['cost']:.4g} on these rows; promised "
        f"{low:.4f} to {high:.4f} at {promise.cost:.4g}",
        "rows of the fit": f"{about.n_learn:,} to learn, {about.n_choose:,} to choose, {about.n_prove:,} to prove",
        "seed": str(about.seed),
    }
