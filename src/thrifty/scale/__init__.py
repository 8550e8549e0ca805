"""Tables larger than memory: one ``Scorer`` of record batches, on one machine and on Dask, Ray and Spark."""

from thrifty.scale.scorer import Scorer

__all__ = ["Scorer"]
