"""What a proof on held-out rows says: which point loses at most so much against the full model, and what shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from thrifty.errors import InvalidInputError
from thrifty.evidence.claims import ClassLoss
from thrifty.evidence.operating_point import OperatingPoint

__all__ = ["Certificate"]


@dataclass(frozen=True)
class Certificate:
    """The cheapest point that was shown to lose at most ``max_loss``, and everything that showed it.

    Attributes
    ----------
    max_loss, confidence : float
        What was to be shown, and how surely: in at most ``1 - confidence`` of all draws of held-out rows does a
        certified point lose more than ``max_loss``.
    n_rows : int
        Held-out rows that were counted: all that were given, without those left out and without repetitions.
    n_losses, bound : int, float
        On how many of them the full model was right and the point wrong, and the exact upper bound from that. What is
        certified is ``max_loss``; the bound of the point at which the search ended is not a sharper certificate.
    n_candidates, n_tested : int
        Points that were fixed in advance, and how many were tested before the first failure (included).
    failed_losses, failed_bound : int, float or None
        Losses and bound of the first point that failed; None if none did.
    point : OperatingPoint or None
        The certified point. None: send every row to the full model, and no system at hand has a gate for that.
    is_fallback : bool
        Whether no candidate passed, so that every row goes to the full model: that loses nothing, and needs no test.
    n_given, n_repeated : int or None
        Rows that were given, and how many of them repeat another one that was counted.
    n_seen : int or None
        Rows that equal one of the fit; None where the rows of the fit are not known.
    duplicates : str or None
        What became of such rows; see ``certify``.
    issued, rows : str or None
        Date of the test, and a fingerprint of the rows that were given, whatever their order.
    by_class : tuple of ClassLoss or None
        Limit, rows, losses and bound of each class, where classes have limits of their own: ``max_loss`` is then the
        largest limit, ``n_losses`` the sum, and ``bound`` that of the class which comes nearest to its limit.
    excess, largest : float or None
        Where a mean was certified: by how much the mean loss exceeded the full model's on the rows counted, as a share
        of ``largest``, the loss at which losses are clipped; ``n_losses`` are then rows that lose more.
    loss : str or None
        What an answer loses, in words; None where it is right or wrong.
    tolerance : float or None
        How much more than the full model's an answer may lose before it counts as worse, where that is not nothing.
    unit : str or None
        What was counted, where that is not rows: "queries".
    """

    max_loss: float
    confidence: float
    n_rows: int
    n_losses: int
    bound: float
    n_candidates: int
    n_tested: int
    failed_losses: int | None
    failed_bound: float | None
    point: OperatingPoint | None
    is_fallback: bool
    n_given: int | None = None
    n_repeated: int | None = None
    n_seen: int | None = None
    duplicates: str | None = None
    issued: str | None = None
    rows: str | None = None
    by_class: tuple[ClassLoss, ...] | None = None
    excess: float | None = None
    largest: float | None = None
    loss: str | None = None
    tolerance: float | None = None
    unit: str | None = None

    def __str__(self) -> str:
        return f"{self._claim}. {self._basis}"

    @property
    def _claim(self) -> str:
        counted = f"{self.n_rows:,} held-out {self.unit or 'rows'}"
        surely = f"with {_percent(self.confidence)} confidence, on {counted}"
        if self.is_fallback:
            return (
                f"sends every row to the full model, and so loses nothing against it: the safest of "
                f"{self.n_candidates:,} points could not be shown to {self._limits('lose', 'have')}, {surely}: "
                f"{self._outcome(self.failed_losses or 0, self.failed_bound or 0.0)}"
            )
        return f"{self._limits('loses', 'has')}, {surely}: {self._outcome(self.n_losses, self.bound)}"

    def _limits(self, loses: str, has: str) -> str:
        """What was to be shown, with its verb."""
        if self.largest is not None:
            return (
                f"{has} a mean {self.loss or 'error'} (clipped at {self.largest:.6g}) that exceeds the full model's by "
                f"at most {self.max_loss * self.largest:.6g}, {_percent(self.max_loss)} of that"
            )
        if self.by_class is not None:
            parts = [f"{_percent(one.max_loss)} of answers to rows of {one.label!r}" for one in self.by_class]
            limits = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
        else:
            limits = f"{_percent(self.max_loss)} of {self.unit or 'answers'}"
        return f"{loses} at most {limits} against the full model{self._meaning}"

    @property
    def _meaning(self) -> str:
        """What counts as lost, where that is not just a wrong answer."""
        if self.loss is None:
            return ""
        more = f" by more than {self.tolerance:.6g}" if self.tolerance else ""
        one = "an answer" if self.unit is None else f"one of the {self.unit}"
        return f" ({one} is lost if its {self.loss} exceeds that of the full model{more})"

    def _outcome(self, n_losses: int, bound: float) -> str:
        if self.largest is not None and self.excess is not None:
            return f"it differed by {self.excess * self.largest:.3g} (bound {bound * self.largest:.3g})"
        if self.by_class is not None:
            return "; ".join(
                f"of {one.n_rows:,} of {one.label!r} {_worse(one.n_losses, one.bound, '')}"
                for one in self.by_class
            )
        return _worse(n_losses, bound)

    @property
    def _basis(self) -> str:
        """What the claim rests on, in words: assumptions, what was counted, when and on which rows."""
        told = "This assumes that the rows are independent of each other and of the fit, and drawn as future rows are"
        if self.issued is None:
            return f"{told}; an earlier version issued it, which did not look for rows that equal others"
        parts = [told, *self._counted(), f"issued on {self.issued}"]
        return "; ".join(parts) + ("" if self.rows is None else f" for the rows {self.rows}")

    def _counted(self) -> list[str]:
        """What was counted, where that is not just the rows that were given."""
        if self.rows is None:
            return ["the rows could not be compared with each other or with those of the fit"]
        parts = [] if self.n_seen is not None else ["the rows could not be compared with those of the fit"]
        if self.duplicates == "count":
            return [*parts, "rows that equal others were counted as independent ones, as was asked for"]
        if self.n_seen:
            parts.append(
                f"{self.n_seen:,} of {self.n_given:,} rows given equal rows of the fit and were left out, so it speaks "
                f"of rows unlike those"
            )
        if self.n_repeated:
            parts.append(
                f"{self.n_repeated:,} of {self.n_given:,} rows given repeat others and were not counted"
            )
        return parts or ["none of them equals another one, or one of the fit"]

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for a JSON file."""
        entries = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        by_class = None if self.by_class is None else [one._asdict() for one in self.by_class]
        point = None if self.point is None else self.point.as_dict()
        return entries | {"point": point, "by_class": by_class}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """The certificate that ``as_dict`` described."""
        wanted = {entry.name for entry in fields(cls)}
        # The first versions did not tell rows apart.
        entries = {**{entry.name: None for entry in fields(cls) if entry.default is None}, **entries}
        if set(entries) != wanted:
            differing = sorted(wanted ^ set(entries))
            raise InvalidInputError(
                f"a certificate has the entries {sorted(wanted)}; missing or unknown: {differing}."
            )
        point = None if entries["point"] is None else OperatingPoint.from_dict(entries["point"])
        by_class = (
            None if entries["by_class"] is None else tuple(ClassLoss(**one) for one in entries["by_class"])
        )
        return cls(**{**entries, "point": point, "by_class": by_class})

    def with_labels(self, names: Mapping[Any, Any]) -> "Certificate":
        """The certificate with other names of the classes."""
        if self.by_class is None:
            return self
        named = tuple(one._replace(label=names.get(one.label, one.label)) for one in self.by_class)
        return replace(self, by_class=named)


def _worse(n_losses: int, bound: float, of_them: str = " of them") -> str:
    return f"{n_losses:,}{of_them} {'was' if n_losses == 1 else 'were'} worse (bound {_percent(bound)})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
