"""Providers: who sells the columns that a request does not carry, asked by a key that it does carry.

A provider is asked through one of the sources of ``thrifty.sources``. What it delivered is kept for a while and costs
nothing when another request needs it. A provider that fails again and again is left alone for a second at a time.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from thrifty.errors import InvalidInputError
from thrifty.serve.breaker import Breaker
from thrifty.serve.provider_settings import Make, ProviderSettings, make_of, settings_of

__all__ = ["Bought", "Provider", "providers_of"]


@dataclass(frozen=True)
class Bought:
    """What came of a purchase for some keys.

    Attributes
    ----------
    values : ndarray of shape (n_keys, n_columns), object
        What was delivered.
    paid : ndarray of shape (n_keys, n_columns), bool
        Cells that were not at hand already.
    failed : dict of int to str
        Why nothing was delivered, by the place of the key.
    """

    values: Any
    paid: Any
    failed: dict[int, str]


class Provider:
    """Sells columns by key; may be asked by several threads.

    Parameters
    ----------
    name : str
        What metrics call it.
    settings : ProviderSettings
        How it is asked.
    make : callable
        Makes the source that is asked about some keys.

    Attributes
    ----------
    outcomes : Counter
        Rows, by whether what they needed was "bought", "cached" or "failed".
    failures : Counter
        Questions that failed by the type of the error, and rows that were not asked for, or not delivered, by why.
    """

    def __init__(self, name: str, settings: ProviderSettings, make: Make) -> None:
        self.name, self.settings, self._make = name, settings, make
        self.breaker = Breaker()
        self.outcomes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._in_flight = 0
        self._lock = Lock()
        self._kept: OrderedDict[Any, tuple[float, dict[str, Any]]] = OrderedDict()

    def buy(self, keys: Sequence[Any], names: Sequence[str], ends: float) -> Bought:
        """Values of some columns for some keys, which differ, before a time of the monotonic clock."""
        held = self._from_cache(keys)
        lacking: dict[tuple[str, ...], list[int]] = {}
        for place, found in enumerate(held):
            lacking.setdefault(tuple(name for name in names if name not in found), []).append(place)
        failed: dict[int, str] = {}
        paid = np.array([[name not in found for name in names] for found in held], dtype=bool)
        for wanted, places in lacking.items():
            if wanted:
                failed |= self._ask([keys[place] for place in places], wanted, ends, places, held)
        values = np.array([[found.get(name) for name in names] for found in held], dtype=object)
        with self._lock:
            is_new = paid.any(axis=1)
            self.outcomes["failed"] += len(failed)
            self.outcomes["bought"] += int(is_new.sum()) - len(failed)
            self.outcomes["cached"] += int((~is_new).sum())
        return Bought(values.reshape(len(keys), len(names)), paid, failed)

    def _ask(
        self,
        keys: list[Any],
        wanted: Sequence[str],
        ends: float,
        places: list[int],
        held: list[dict[str, Any]],
    ) -> dict[int, str]:
        """Ask about keys that lack the same columns, add what came to what they hold, and tell what did not."""
        left = ends - time.monotonic()
        reason = "deadline" if left <= 0 else self._begin()
        if reason is not None:
            return self._not_sold(reason, places)
        how = {"timeout": self.settings.timeout, "retries": self.settings.retries, "deadline": left}
        try:
            source = self._make(keys, **how, cache=False)
            delivery = source.fetch(np.arange(len(keys)), list(wanted))
        except Exception as error:  # of a source of somebody else
            self._end(Counter({type(error).__name__: 1}), is_there=False)
            return dict.fromkeys(places, f"{self.name} failed ({type(error).__name__})")
        failures = source.failures or Counter(not_delivered=len(delivery.failed))
        # One try that was answered shows that the provider is there.
        self._end(failures, is_there=source.n_questions > source.failures.total())
        for number, place in enumerate(places):
            if number not in delivery.failed:
                found = [
                    one.item() if isinstance(one, np.generic) else one for one in delivery.values[number]
                ]
                held[place].update(zip(wanted, found, strict=True))
                self._to_cache(keys[number], held[place])
        return {places[number]: str(why) for number, why in delivery.failed.items()}

    def _not_sold(self, reason: str, places: list[int]) -> dict[int, str]:
        with self._lock:
            self.failures[reason] += len(places)
        return dict.fromkeys(places, f"{self.name} was not asked ({reason})")

    def _begin(self) -> str | None:
        """Take a place among the questions under way, or say why there is none."""
        with self._lock:
            if self._in_flight >= self.settings.max_in_flight:
                return "too_many_in_flight"
            if not self.breaker.allows():
                return "breaker_open"
            self._in_flight += 1
            return None

    def _end(self, failures: Counter[str], *, is_there: bool) -> None:
        with self._lock:
            self._in_flight -= 1
            self.failures.update(failures)
            (self.breaker.succeeded if is_there else self.breaker.failed)()

    # -- what is kept ------------------------------------------------------------------------------

    def _from_cache(self, keys: Sequence[Any]) -> list[dict[str, Any]]:
        """What is held of each key, in dictionaries of their own."""
        if not self.settings.cache:
            return [{} for _ in keys]
        now, nothing = time.monotonic(), (0.0, dict[str, Any]())
        with self._lock:
            found = [self._kept.get(key, nothing) for key in keys]
        return [dict(values) if until > now else {} for until, values in found]

    def _to_cache(self, key: Any, values: Mapping[str, Any]) -> None:
        if not self.settings.cache:
            return
        with self._lock:
            now, (until, _) = time.monotonic(), self._kept.pop(key, (0.0, None))
            # What was kept before keeps its time: old values must not live on because others came.
            self._kept[key] = (until if until > now else now + self.settings.cache), dict(values)
            while len(self._kept) > self.settings.max_cached:
                self._kept.popitem(last=False)


def providers_of(tables: Mapping[str, Any], makes: Mapping[str, Make] | None = None) -> tuple[Provider, ...]:
    """The providers in a file of settings.

    Parameters
    ----------
    tables : dict of str to dict
        Settings of each provider, by its name.
    makes : dict of str to callable, optional
        How to make the source of some of them from keys, where settings cannot tell; ``path`` is then not read.
    """
    found = []
    for name, settings in settings_of(tables).items():
        try:
            make = (makes or {}).get(name) or make_of(settings)
        except InvalidInputError as error:
            raise InvalidInputError(f"[providers.{name}]: {error}") from error
        found.append(Provider(name, settings, make))
    return tuple(found)
