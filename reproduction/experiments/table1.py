"""Table 1: how many calls of a remote model a device with ten trees must make for a wished accuracy.

f0 is XGBoost with 500 trees of depth 5, the device holds ten trees of depth 5; learning rates are chosen on validation
rows. Two wishes per data set give up 8 % and 22 % of the gap between f0 and the ten trees, as the paper's wishes do.
Every gate learns from training rows, on which f0 is cross-fitted; its threshold is the one that sends the
fewest *validation* rows while it keeps the wish there; reported are share sent and accuracy of *test* rows, mean
and spread over random splits. Beyond the paper: trees grown best-first with as many leaves, for f1 alone and for f1
and the gate at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproduction.experiments.experiment import Outcome, Run
from reproduction.experiments.fits import Job, Kept, key_of
from reproduction.experiments.table1_split import DATA_SETS, METHODS, RemoteSettings, measure_split
from thrifty.arrays import Floats
from thrifty.errors import DataUnavailableError, InvalidInputError

__all__ = ["run"]

Splits = list[dict[str, Any]]
Found = dict[str, Splits]

NAME = "table1"


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Settings of table 1.

    Attributes
    ----------
    thinned : str
        Sentence on what the appendix has and what is run here; printed on the page.
    data_sets : tuple of str
        Names of the data sets to run; the next two settings have an entry for each.
    splits : tuple of int
        Numbers of random splits; a small set needs more of them for the same standard error.
    full_rates : tuple of tuples of float
        Learning rates tried for f0.
    full_trees, small_rates, grown_rates, given_up, caps, rounds
        As in ``RemoteSettings``.
    """

    thinned: str
    data_sets: tuple[str, ...]
    splits: tuple[int, ...]
    full_rates: tuple[tuple[float, ...], ...]
    full_trees: int
    small_rates: tuple[float, ...]
    grown_rates: tuple[float, ...]
    given_up: tuple[float, ...]
    caps: tuple[float, ...]
    rounds: int

    def __post_init__(self) -> None:
        unknown = [name for name in self.data_sets if name not in DATA_SETS]
        if unknown:
            raise InvalidInputError(f"data_sets must be among {', '.join(DATA_SETS)}; got {unknown[0]!r}.")
        if not len(self.data_sets) == len(self.splits) == len(self.full_rates):
            raise InvalidInputError(
                f"splits and full_rates must have one entry for each of the {len(self.data_sets)} data_sets; "
                f"got {len(self.splits)} and {len(self.full_rates)}."
            )

    def of(self, name: str) -> RemoteSettings:
        """Return the settings of one data set."""
        rates = self.full_rates[self.data_sets.index(name)]
        return RemoteSettings(
            self.full_trees, rates, self.small_rates, self.grown_rates, self.given_up, self.caps, self.rounds
        )


def run(how: Run) -> Outcome:
    """Run every split of every data set and return the table."""
    settings = how.settings(TableSettings, NAME)
    try:
        import xgboost  # noqa: F401
    except ModuleNotFoundError as error:
        raise DataUnavailableError(
            "thrifty paper table1 needs XGBoost as f0. Install it with thrifty[boosters]."
        ) from error
    # The data is the files' whose checksums are part of the code.
    kept = Kept(how.out / f"{NAME}.cells", {"experiment": NAME})
    found = _measure(settings, kept, how)
    wishes = settings.given_up
    outcome = Outcome(
        NAME,
        "Share of rows sent to the remote model, in %, for a wished accuracy",
        ["", *(f"{DATA_SETS[name].title}, {part:.0%}" for name in found for part in wishes)],
        _rows(found, len(wishes)),
        {"given_up": wishes, "methods": METHODS, "splits": found},
        [
            *(line for name, splits in found.items() for line in _sentences(name, splits, wishes)),
            *_sizes(found),
            *_rounds(found, settings.rounds),
            *_times(found),
            f"Sweep: {settings.thinned}",
        ],
    )
    outcome.write(how.out)
    return outcome


def _measure(settings: TableSettings, kept: Kept, how: Run) -> Found:
    # The longest first, so that no process is left with a long one at the end.
    cells = [
        (name, seed)
        for name, n_splits in reversed([*zip(settings.data_sets, settings.splits, strict=True)])
        for seed in range(n_splits)
    ]
    jobs = []
    for name, seed in cells:
        remote = settings.of(name)
        key = key_of(measure_split, {"name": name, "seed": seed, "settings": remote})
        jobs.append(Job(key, measure_split, (name, seed, how.data, remote)))
    results = kept.run(jobs, n_jobs=how.n_jobs, progress=how.progress, what="table 1: splits")
    found: Found = {name: [] for name in settings.data_sets}
    for result in results:
        found[result["data"]].append(result)
    return found


def _rows(found: Found, n_wishes: int) -> list[list[str]]:
    """Make one row a method, one column a data set and wish: mean share sent and its standard deviation over splits."""
    columns = [(found[name], number) for name in found for number in range(n_wishes)]

    def average(values: list[float]) -> str:
        return f"{np.mean(values):.3f}"

    rows = [
        [
            f"accuracy of {model}",
            *(average([s["accuracy"][model]["test"] for s in splits]) for splits, _ in columns),
        ]
        for model in ("f0", "f1")
    ]
    rows.append(
        ["wish", *(average([split["wishes"][number] for split in splits]) for splits, number in columns)]
    )
    for method in METHODS:
        shares = [_shares(splits, method, number) for splits, number in columns]
        rows.append([method, *(f"{share.mean():.1f} ± {_deviation(share):.1f}" for share in shares)])
    return rows


def _deviation(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _shares(splits: Splits, method: str, number: int) -> Floats:
    return 100.0 * np.array([split["methods"][method]["share"][number] for split in splits])


def _sentences(name: str, splits: Splits, given_up: Sequence[float]) -> list[str]:
    """Say what each method saves against confidence, and how near the wish its test accuracy came."""
    lines = []
    for number, part in enumerate(given_up):
        against = _shares(splits, "confidence", number)
        parts = []
        for method in METHODS:
            saved = _shares(splits, method, number) - against
            error = _deviation(saved) / np.sqrt(len(saved))
            off = np.mean(
                [split["methods"][method]["accuracy"][number] - split["wishes"][number] for split in splits]
            )
            shown = "" if method == "confidence" else f"{saved.mean():+.1f} ± {error:.1f} points, "
            parts.append(f"{method} {shown}accuracy {off:+.4f}")
        lines.append(
            f"{DATA_SETS[name].title}, {part:.0%} of the gap given up, {len(splits)} splits; share sent minus that of "
            f"confidence (standard error), and test accuracy minus the wish: {'; '.join(parts)}."
        )
    return lines


def _sizes(found: Found) -> list[str]:
    """Say how many bytes the device holds, and how many XGBoost's own file has."""
    splits = [split for part in found.values() for split in part]

    def mean(method: str) -> float:
        return float(np.mean([split["methods"][method]["bytes"] for split in splits]))

    sentence = (
        f"Bytes on the device, mean over all splits: ten XGBoost trees with a gate in their leaves "
        f"{mean('DM-Lstsq'):,.0f}, joint structure {mean('joint'):,.0f}; XGBoost's own file of the ten trees, without "
        f"a gate, {np.mean([split['bytes_xgboost'] for split in splits]):,.0f}."
    )
    return [sentence]


def _rounds(found: Found, most: int) -> list[str]:
    """Say how many alternations ended at their tolerance and how many at the last round."""
    rounds = [
        number
        for splits in found.values()
        for split in splits
        for measured in split["methods"].values()
        for number in measured["rounds"]
        if number is not None
    ]
    sentence = (
        f"Alternations: {len(rounds)}, at most {most} rounds each; the median took {np.median(rounds):.0f}, and "
        f"{np.mean(np.array(rounds) < most):.0%} stopped before the last round because the objective changed by less "
        f"than 1e-4."
    )
    return [sentence]


def _times(found: Found) -> list[str]:
    parts = [
        f"{DATA_SETS[name].title} {sum(split['seconds'] for split in splits):.0f} s for {len(splits)} splits"
        for name, splits in found.items()
    ]
    return [f"Processor time: {'; '.join(parts)}."]
