"""Where documents of queries are ranked: the metric of a page is a mean over queries, its costs over documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence, QueryEvidence
from thrifty.report.facts import Facts, Majority
from thrifty.report.routes import Routes
from thrifty.report.shown import Shown

__all__ = ["Orders"]


@dataclass(frozen=True, eq=False)
class Orders:
    """The documents of a report; a row of its page is a document, and intervals draw queries.

    Attributes
    ----------
    evidence : QueryEvidence
        Of one of the systems, all of which are judged on the same queries.
    """

    evidence: QueryEvidence

    def judged(
        self,
        evidence: Sequence[Evidence],  # noqa: ARG002 - what every kind of answer is given
        shown: Shown,  # noqa: ARG002
        at: Sequence[tuple[Routes, Floats]],  # noqa: ARG002
        slices: Mapping[str, ArrayLike] | None,
        **draws: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """What facts say about orders, by the name of the field; groups of documents have no order of their own."""
        if slices:
            raise InvalidInputError(
                f"slices tell rows apart that are answered one by one; here the order of a query is judged as a whole. "
                f"Leave {', '.join(map(repr, slices))} out."
            )
        one = self.evidence
        assert one.task is not None  # checked when it was made
        by_chance = float(np.nanmean(one.value(np.zeros(one.n_documents))))
        return {
            "groupings": (),
            "majority": Majority("the mean of all orders", by_chance),
            "score": one.task.quality_name,
            "errors": (),
        }

    def rescaled(self, facts: Facts) -> Facts:
        """Facts that count documents and queries, with the metric of the full model's own orders."""
        one, full = self.evidence, facts.full
        measured = replace(facts.measured, n_rows=one.n_documents, n_queries=one.n_rows)
        if full is not None:
            full = replace(full, accuracy=one.full_score)
        return replace(facts, measured=measured, full=full)
