"""Scoring of Ray data sets."""

from typing import Any

import pyarrow as pa

from thrifty.scale.scorer import Scorer


class _Score:
    """A worker: Ray makes one in each process, which loads the system once."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def __call__(self, table: pa.Table) -> pa.Table:
        return self.scorer.table(table)


def predict(
    dataset: Any, system: Any, *, concurrency: int = 1, batch_size: int | None = 50_000, **options: Any
) -> Any:
    """Answers to the rows of a Ray data set, computed lazily, batch by batch.

    Parameters
    ----------
    dataset : ray.data.Dataset
        Rows.
    system : path or Scorer
        The system. Workers must be able to read the path.
    concurrency : int, default=1
        Number of worker processes.
    batch_size : int or None, default=50_000
        Rows in a batch; None takes whole blocks.
    **options
        As ``Scorer`` takes them: ``at``, ``row_key``, ``unseen``. Name ``row_key`` where a budget mixes two
        operating points.
    """
    from ray.data import ActorPoolStrategy

    scorer = Scorer.of(system, **options)
    wanted = [name for name in scorer.columns if name in dataset.schema().names]
    return dataset.select_columns(wanted).map_batches(
        _Score,
        fn_constructor_args=(scorer,),
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ActorPoolStrategy(size=concurrency),
    )
