"""Fits and scoring of Dask data frames."""

from typing import Any

import pandas as pd
import pyarrow as pa
from dask.base import compute
from dask.delayed import delayed

from thrifty.scale import fit as partitions
from thrifty.scale.scorer import Scorer


def predict(frame: Any, system: Any, **options: Any) -> Any:
    """Answers to the rows of a Dask data frame, computed lazily, partition by partition.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Rows.
    system : path or Scorer
        The system. Workers must be able to read the path.
    **options
        As ``Scorer`` takes them: ``at``, ``row_key``, ``unseen``. Name ``row_key`` where a budget mixes two
        operating points.
    """
    scorer = Scorer.of(system, **options)
    columns = [name for name in scorer.columns if name in frame.columns]
    # Dask derives the columns of the answers from those of a frame without rows.
    index = pd.Index([], dtype=frame.index.dtype, name=frame.index.name)
    empty = pd.DataFrame(
        {name: pd.Series(index=index, dtype=frame.dtypes[name]) for name in columns}, index=index
    )
    meta = _score(empty, scorer)
    return frame[columns].map_partitions(_score, scorer, meta=meta)


def fit(estimator: Any, frame: Any, target: str, **options: Any) -> Any:
    """Fit on a sample of a Dask data frame, and measure the operating points on all other rows.

    ``target`` is the column to predict, all others are features; ``options`` are those of ``thrifty.scale.fit.fit``:
    ``sample``, ``max_loss`` and ``confidence``.
    """

    def each(function: Any) -> list[Any]:
        # One node of the graph, which each worker is sent once.
        shared = delayed(function, pure=False)
        tasks = [shared(part, number) for number, part in enumerate(frame.to_delayed())]
        return list(compute(*tasks))  # type: ignore[no-untyped-call]  # Dask is untyped

    features = [name for name in frame.columns if name != target]
    return partitions.fit(estimator, each, features, target, **options)


def _score(frame: pd.DataFrame, scorer: Scorer) -> pd.DataFrame:
    answers = scorer.table(pa.Table.from_pandas(frame, preserve_index=False))
    return answers.to_pandas().set_axis(frame.index)
