"""Scoring of Dask data frames."""

from typing import Any

import pandas as pd
import pyarrow as pa

from thrifty.scale.scorer import Scorer

__all__ = ["predict"]


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
    scorer = system if isinstance(system, Scorer) else Scorer(system, **options)
    columns = [name for name in scorer.columns if name in frame.columns]
    meta = _score(frame._meta[columns], scorer)
    return frame[columns].map_partitions(_score, scorer, meta=meta)


def _score(frame: pd.DataFrame, scorer: Scorer) -> pd.DataFrame:
    table = pa.Table.from_pandas(frame, preserve_index=False).combine_chunks()
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    answers = pa.Table.from_batches([scorer(batch) for batch in batches]).to_pandas()
    return answers.set_axis(frame.index)
