"""Objects as files of version 0.3 hold them, and what they are now.

Such a class has the name and the fields of the former one, and ``restored`` makes today's object of it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from thrifty.arrays import Bools, Codes, Floats, Numbers, Words
from thrifty.bundle.codec import register
from thrifty.engine.evidence.budgets import CostCertificate
from thrifty.engine.evidence.certificate import Certificate
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.queries import RankedQueries
from thrifty.engine.tasks.ranking import RankingTask


class Former:
    """Fields of an object of version 0.3."""

    @abstractmethod
    def restored(self) -> Any:
        """Today's object."""


@register
@dataclass(frozen=True, eq=False)
class QueryEvidence(Former):
    """Evidence of a ranking, with the queries among its fields; see ``Evidence`` and ``RankedQueries``."""

    gate: Floats
    quality: Numbers
    cost: Floats
    task: RankingTask
    document_targets: Floats
    full_quality: Numbers | None = None
    points: Floats | None = None
    weight: Floats | None = None
    features: tuple[int, ...] = ()
    rows: Words | None = None
    seen: Words | None = None
    strata: Codes | None = None
    right: Bools | None = None
    tolerance: float = 0.0
    optimism: Floats | None = None
    against: bool = False

    def restored(self) -> Evidence:
        """The evidence, with its queries as units."""
        names = set(self.__dataclass_fields__) - {"document_targets", "against"}
        unit = RankedQueries(self.document_targets, self.task, self.against).validate()
        return Evidence(**{name: getattr(self, name) for name in names}, unit=unit)


register(QueryEvidence, infinite=("points",))


@register
@dataclass(frozen=True)
class RouterCertificate(Former):
    """Certificate of a router; see ``Certificate`` and ``CostCertificate``."""

    measure: str
    bound: float
    limit: float
    confidence: float
    n_rows: int
    against: str = ""
    n_next: int = 0

    def restored(self) -> Certificate | CostCertificate:
        """The certificate; equal rows counted as independent ones."""
        if self.measure == "bill":
            return CostCertificate(self.limit, self.bound, self.confidence, self.n_rows, self.n_next)
        return Certificate(
            max_loss=self.limit,
            confidence=self.confidence,
            n_rows=self.n_rows,
            n_losses=None,
            bound=self.bound,
            n_candidates=1,
            n_tested=1,
            failed_losses=None,
            failed_bound=None,
            point=None,
            is_fallback=False,
            n_given=self.n_rows,
            n_repeated=None,
            n_seen=None,
            duplicates="count",
            issued="",
            rows=None,
            largest=1.0,
            against=self.against,
        )
