"""The evidence about a chain, as JSON and arrays."""

from typing import Any

import numpy as np

from thrifty.arrays import Codes, Floats, Labels, Numbers
from thrifty.bundle.fields import Fields, Packer
from thrifty.chain.chain import Chain
from thrifty.evidence.evidence import Evidence, QueryEvidence
from thrifty.tasks.ranking import RankingTask, queries_of

__all__ = ["pack_evidence", "unpack_evidence", "unpack_strata"]


def pack_evidence(evidence: Evidence, packer: Packer) -> dict[str, Any]:
    """The evidence as JSON; settings are what a file says elsewhere."""

    def quality(values: Numbers) -> dict[str, int]:
        return packer.array(np.asarray(values, dtype=np.bool_ if values.dtype == bool else np.float64))

    full = evidence.full_quality
    return {
        "gate": packer.floats(evidence.gate),
        "quality": quality(evidence.quality),
        "cost": packer.floats(evidence.cost),
        "full_quality": None if full is None else quality(full),
        "points": packer.optional(evidence.points),
        "weight": packer.optional(evidence.weight),
        **{name: None if rows is None else packer.array(rows) for name, rows in _known_of(evidence).items()},
        **({"documents": packer.floats(evidence.targets)} if isinstance(evidence, QueryEvidence) else {}),
    }


def _known_of(evidence: Evidence) -> dict[str, Labels | None]:
    return {name: getattr(evidence, name) for name in ("rows", "seen", "strata", "right")}


def unpack_evidence(fields: Fields, chain: Chain) -> Evidence:
    """The evidence about a chain, every part of it checked."""
    n_stages = chain.n_own_stages
    gate = fields.array("gate", np.float64, (None, n_stages))
    n_rows = len(gate)
    if not n_rows:
        raise fields.refusal("gate", "have a row", "none")

    def quality(name: str, shape: tuple[int, ...]) -> Any:
        kind = getattr(getattr(fields.value(name), "dtype", None), "kind", "f")
        return fields.array(name, np.bool_ if kind == "b" else np.float64, shape)

    per_row = getattr(fields.value("cost"), "ndim", 0) == 2
    cost = fields.array("cost", np.float64, (n_rows, n_stages + 1) if per_row else (n_stages + 1,))
    if np.any(cost < 0):
        raise fields.refusal("cost", "be at least 0", float(cost.min()))
    points = fields.optional_floats("points", None, n_stages, finite=False)
    if points is None and n_stages > 1:
        raise fields.refusal("points", f"be there for {n_stages} stages", "None")
    weight = fields.optional_floats("weight", n_rows)
    if weight is not None and (np.any(weight < 0) or not np.any(weight > 0)):
        raise fields.refusal("weight", "be at least 0, and not all 0", float(weight.min()))
    kind: type[Evidence] = Evidence
    known: dict[str, Any] = {}
    n_fingerprints = n_rows
    if isinstance(chain.task, RankingTask):
        documents = _unpack_documents(fields, n_rows)
        kind, known = QueryEvidence, {"document_targets": documents}
        n_fingerprints = len(np.unique(queries_of(documents)))
    return kind(
        gate,
        quality("quality", (n_rows, n_stages + 1)),
        cost,
        None if fields.raw("full_quality") is None else quality("full_quality", (n_rows,)),
        points,
        weight,
        tuple(chain.columns.tolist()),
        tuple(tuple(stage.columns.tolist()) for stage in chain.stages),
        rows=_unpack_known(fields, "rows", np.uint64, n_fingerprints, 2),
        seen=_unpack_known(fields, "seen", np.uint64, None),
        strata=unpack_strata(fields, n_rows, len(chain.classes)),
        right=_unpack_known(fields, "right", np.bool_, n_rows, n_stages + 1),
        tolerance=chain.task.tolerance,
        task=chain.task,
        **known,
    )


def _unpack_documents(fields: Fields, n_rows: int) -> Floats:
    """Query and grade of each document, as the task encodes them."""
    documents = fields.array("documents", np.float64, (n_rows,))
    if np.any(documents < 0) or np.any(documents != np.round(documents)):
        raise fields.refusal("documents", "be whole numbers of at least 0", float(documents.min()))
    return documents


def _unpack_known(fields: Fields, name: str, dtype: Any, *shape: int | None) -> Any:
    """What is known of rows, where it is: files of earlier versions keep less."""
    kept = fields.has(name) and fields.raw(name) is not None
    return fields.array(name, dtype, shape) if kept else None


def unpack_strata(fields: Fields, n_rows: int, n_classes: int) -> Codes | None:
    """Number of the class of each row, where the file keeps it."""
    strata: Codes | None = _unpack_known(fields, "strata", np.min_scalar_type(n_classes - 1), n_rows)
    if strata is not None and strata.max() >= n_classes:
        raise fields.refusal("strata", f"number {n_classes} classes", int(strata.max()))
    return strata
