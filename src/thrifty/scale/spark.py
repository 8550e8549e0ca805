"""Scoring of Spark data frames."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from thrifty.scale.scorer import Scorer


def predict(frame: Any, system: Any, **options: Any) -> Any:
    """Answers to the rows of a Spark data frame, computed lazily, partition by partition.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Rows.
    system : path or Scorer
        The system. Executors must be able to read the path.
    **options
        As ``Scorer`` takes them: ``at``, ``row_key``, ``unseen``. Name ``row_key`` where a budget mixes two
        operating points.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    scorer = Scorer.of(system, **options)
    frame = frame.select(*[f"`{name}`" for name in scorer.columns if name in frame.columns])

    def score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(scorer, batches)

    return frame.mapInArrow(score, from_arrow_schema(scorer.schema(to_arrow_schema(frame.schema))))
