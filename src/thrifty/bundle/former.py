"""Objects as files of version 0.3 hold them, and what they are now.

Such a class has the name and the fields of the former one, and ``restored`` makes today's object of it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from thrifty.arrays import Bools, Codes, Floats, Numbers, Words
from thrifty.bundle.codec import register
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.queries import RankedQueries
from thrifty.engine.tasks.ranking import RankingTask

__all__ = ["Former", "QueryEvidence"]


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
