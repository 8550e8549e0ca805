"""Features from a service of the web that answers questions in JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np

from thrifty.arrays import Ints
from thrifty.chain.sources import Delivery
from thrifty.errors import InvalidInputError
from thrifty.sources.patient import PatientSource, plain_keys

__all__ = ["HttpSource"]

MAX_BYTES = 2**26
"""Size of the largest answer that is read, unless something else is said."""


class HttpSource(PatientSource):
    """A service that takes a POST of ``{"rows": [keys], "columns": [names]}``.

    It answers with ``{"values": [[...], ...]}``, a list per row in the order asked for and ``null`` where a value is
    missing; ``"failed": {"key": "why"}`` may name rows that it could not deliver.

    Parameters
    ----------
    url : str
        Address of the service, http or https.
    keys : sequence
        The rows to ask about, as the service calls them, in the order of the answers.
    headers : dict, optional
        Headers of every question, such as an authorisation.
    max_bytes : int
        Size of the largest answer that is read.
    chunk_size, threads, timeout, retries, deadline, cache
        Most rows in one question, questions at the same time, seconds for one question, how often a question is put
        again, within how many seconds, and whether delivered cells are kept so that they are never bought again.
    """

    def __init__(
        self,
        url: str,
        keys: Sequence[Any],
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_BYTES,
        chunk_size: int = 1000,
        threads: int = 4,
        timeout: float | None = 30.0,
        retries: int = 3,
        deadline: float | None = None,
        cache: bool = True,
    ) -> None:
        if not str(url).startswith(("http://", "https://")):
            raise InvalidInputError(f"url must begin with http:// or https://; got {url!r}.")
        self._keys = plain_keys(keys)
        super().__init__(
            len(self._keys),
            chunk_size=chunk_size,
            threads=threads,
            timeout=timeout,
            retries=retries,
            deadline=deadline,
            cache=cache,
        )
        self._url, self._max_bytes = url, max_bytes
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    def ask(self, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Put one question."""
        keys = [self._keys[row] for row in rows.tolist()]
        body = json.dumps({"rows": keys, "columns": list(names)}).encode()
        try:
            with urlopen(Request(self._url, body, self._headers), timeout=self._timeout) as response:
                raw = response.read(self._max_bytes + 1)
        except HTTPError as error:
            error.close()
            raise ConnectionError(f"the service answered {error.code} {error.reason}") from error
        if len(raw) > self._max_bytes:
            raise InvalidInputError(f"a service must answer with at most {self._max_bytes:,} bytes.")
        said = json.loads(raw)
        if not isinstance(said, dict) or not isinstance(said.get("values"), list):
            raise InvalidInputError(
                f'a service must answer with {{"values": [[...], ...]}}; got {str(said)[:80]!r}.'
            )
        failed = said.get("failed") or {}
        row_of = {str(key): int(row) for key, row in zip(keys, rows, strict=True)}
        return Delivery(
            np.array(said["values"], dtype=object).reshape(len(said["values"]), -1),
            {row_of[key]: str(why) for key, why in failed.items() if key in row_of},
        )
