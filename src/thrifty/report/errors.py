"""Where numbers are predicted: R2 on the rows of the report, mean errors with their intervals, and who suffers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError
from thrifty.evidence.bootstrap import resampled, tails
from thrifty.evidence.evidence import Evidence, QueryEvidence
from thrifty.evidence.frontier import Frontier
from thrifty.report.classes import Partition, partition_of
from thrifty.report.facts import Facts, Grouping, Majority, MeasureCurve
from thrifty.report.rankings import Orders
from thrifty.report.routes import Routes
from thrifty.report.shown import Shown
from thrifty.tasks.task import ERRORS, Task, mean_error, mean_errors

__all__ = ["Numbers", "numbers_of"]

_RANGES = 5
"""Ranges of the target, each with as many rows, that get a line of their own."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """The targets of a report whose answers are numbers.

    Attributes
    ----------
    task : Task
        What an answer is.
    y : ndarray of shape (n_rows,)
        Targets as the task encodes them.
    """

    task: Task
    y: Floats

    def rescaled(self, facts: Facts) -> Facts:
        """Facts whose mean qualities became R2 on these rows, or D2; a lead has no constant to be compared with."""

        def score(values: Sequence[float]) -> tuple[float, ...]:
            return tuple(self.task.score(self.y, np.array(values)).tolist())

        points, full = facts.points, facts.full
        first, second = score([0.0, 1.0])
        changed: dict[str, Any] = {
            name: tuple((second - first) * one for one in getattr(points, name))
            for name in ("lead_low", "lead_high")
        }
        changed |= {name: score(getattr(points, name)) for name in ("accuracy", "low", "high")}
        return replace(
            facts,
            points=replace(points, **changed),
            full=None if full is None else replace(full, accuracy=score([full.accuracy])[0]),
            rivals=tuple(replace(one, accuracy=score(one.accuracy)) for one in facts.rivals),
        )

    def judged(
        self,
        evidence: Sequence[Evidence],
        shown: Shown,
        at: Sequence[tuple[Routes, Floats]],
        slices: Mapping[str, ArrayLike] | None,
        *,
        level: float,
        n_boot: int,
        seed: int,
    ) -> dict[str, Any]:
        """What facts say about numbers, by the name of the field."""
        full = next((one.full_scores for one in evidence if one.full_scores is not None), None)
        errors = self.curves(evidence, shown, full, level=level, n_boot=n_boot, seed=seed)
        return {
            "groupings": self.groupings(slices, at, full),
            "majority": self.constant,
            "score": self.task.quality_name,
            "errors": errors,
            "measures": () if self.task.quality_name == "R2" else self.r2_of(errors),
        }

    @property
    def constant(self) -> Majority:
        """The number that errs least as the answer to every row; its score is 0 by definition."""
        number = float(self.task.decode(self.task.loss(self.y).base(np.ones(len(self.y))))[0])
        return Majority(f"{number:.5g}", 0.0)

    def errors_of(self, scores: Floats | None) -> Floats | None:
        """Absolute error of each row, where the scores are known."""
        return None if scores is None else self.task.errors(self.y, scores)

    def curves(
        self,
        evidence: Sequence[Evidence],
        shown: Shown,
        full: Floats | None,
        *,
        level: float,
        n_boot: int,
        seed: int,
    ) -> tuple[MeasureCurve, ...]:
        """Mean errors of each point, with intervals; none where a system does not tell what it answered."""
        if any(evidence[place].scores is None for place in np.unique(shown.source)):
            return ()
        constant = np.tile(self.task.loss(self.y).base(np.ones(len(self.y))), (len(self.y), 1))
        theirs = {} if full is None else mean_errors(self.task, self.y, full)
        alike = mean_errors(self.task, self.y, constant)
        curves = []
        for name, power in ERRORS.items():
            powers = [self._with_powers(one, power) for one in evidence]
            _, means = resampled(powers, shown.source, shown.thresholds, n_boot=n_boot, seed=seed)
            low, high = (mean_error(ends, power).tolist() for ends in tails(means, level))
            value = [
                float(mean_error(powers[source].at_point(point[: powers[source].n_stages])[2].mean(), power))
                for source, point in zip(shown.source.tolist(), shown.thresholds, strict=True)
            ]
            curves.append(
                MeasureCurve(name, tuple(value), tuple(low), tuple(high), theirs.get(name), alike[name])
            )
        return tuple(curves)

    def r2_of(self, errors: Sequence[MeasureCurve]) -> tuple[MeasureCurve, ...]:
        """R2 by the root mean squared errors, for scores that are something else; the targets spread as they do."""
        spread = float(np.var(np.asarray(self.task.decode(self.y))))

        def score(values: Sequence[float]) -> tuple[float, ...]:
            return tuple(1.0 - value**2 / spread for value in values)

        return tuple(
            MeasureCurve(
                "R2",
                score(one.value),
                score(one.high),
                score(one.low),
                None if one.full is None else score([one.full])[0],
                score([one.constant])[0],
            )
            for one in errors
            if one.name == "RMSE"
        )

    def _with_powers(self, one: Evidence, power: int) -> Evidence:
        """The evidence with errors to a power in the place of quality."""
        if one.scores is None:
            return one
        errors = [self.errors_of(one.scores[:, place]) for place in range(one.scores.shape[1])]
        return replace(one, quality=np.stack(errors, axis=1) ** power)  # type: ignore[arg-type]  # numbers have errors

    def groupings(
        self,
        slices: Mapping[str, ArrayLike] | None,
        points: Sequence[tuple[Routes, Floats]],
        full: Floats | None,
    ) -> tuple[Grouping, ...]:
        """Ranges of the target and slices, with counts of rows sent and sums of absolute errors at each point."""
        n_rows = len(self.y)
        partitions = [_ranges(np.asarray(self.task.decode(self.y)))]
        partitions += [partition_of(str(name), labels, n_rows) for name, labels in (slices or {}).items()]
        errors = [self.errors_of(routes.scores(point)) for routes, point in points]
        if any(one is None for one in errors):
            return ()
        sent = [routes.place(point) == routes.n_stages for routes, point in points]
        alone = self.errors_of(full)
        return tuple(
            Grouping(
                name=partition.name,
                labels=partition.labels,
                n_rows=partition.count(),
                full_right=None if alone is None else _sums(partition, alone),
                sent=tuple(partition.count(one) for one in sent),
                right=tuple(_sums(partition, one) for one in errors if one is not None),
            )
            for partition in partitions
        )


def numbers_of(frontier: Frontier, y: ArrayLike, estimators: Sequence[Any] | None) -> Numbers | Orders | None:
    """The targets, where the systems of a frontier predict numbers or rank; None where they answer with labels."""
    known = [getattr(one, "chain_", one) for one in estimators or () if one is not None]
    tasks = [one.task for one in known if hasattr(one, "task")]
    ranked = [one for one in frontier.evidence if isinstance(one, QueryEvidence)]
    if ranked:
        return Orders(next((one for one in ranked if one.full_quality is not None), ranked[0]))
    if tasks and len(tasks[0].classes) == 0:
        return Numbers(tasks[0], tasks[0].encode("y", y, frontier.n_rows))
    if not tasks and any(one.quality.dtype != bool and _has_fractions(one) for one in frontier.evidence):
        raise InvalidInputError(
            "quality must be right or wrong (bool, or 0 and 1) on every row, unless the systems predict numbers, which "
            "is known from a fitted one. Give those as `estimators` with `X`, or one as `deployed`."
        )
    return None


def _has_fractions(one: Evidence) -> bool:
    return not bool(np.isin(one.quality, (0.0, 1.0)).all())


def _ranges(y: Floats) -> Partition:
    """Rows by their target, in ranges that hold as many rows each."""
    cuts = np.unique(np.quantile(y, np.arange(1, _RANGES) / _RANGES, method="lower"))
    cuts = cuts[cuts < y.max()]
    ends = [f"{cut:.5g}" for cut in cuts]
    words = [f"up to {ends[0]}"] if ends else ["all"]
    words += [f"above {low} to {high}" for low, high in pairwise(ends)]
    words += [f"above {ends[-1]}"] if ends else []
    return Partition("target", tuple(words), np.searchsorted(cuts, y))


def _sums(partition: Partition, values: Floats) -> tuple[float, ...]:
    sums = np.bincount(partition.of_row, weights=values, minlength=len(partition.labels))
    return tuple(sums.tolist())
