"""Errors and warnings that thrifty raises on purpose."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

FULL_MODEL = "the full model"
"""Default model name in error messages."""

_ROWS_SHOWN = 5


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggestion of the nearest known name for an error message; empty if there is none."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable[Any], max_names: int = 5) -> str:
    """First few names, joined for a message."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:max_names])
    return shown if len(names) <= max_names else f"{shown} and {len(names) - max_names} more"


class ThriftyError(Exception):
    """Root of every error raised on purpose."""


class InvalidInputError(ThriftyError, ValueError):
    """An argument or a table breaks a rule; the message names it, the value found and the way out."""


class InvalidParameterError(InvalidInputError):
    """A parameter breaks a rule; a command spells its name as an option.

    Parameters
    ----------
    parameter : str
        Name of the parameter, with which the message begins.
    rule : str
        The rest of the message: the rule, the value and the way out.

    Examples
    --------
    >>> error = InvalidParameterError("max_loss", "must lie strictly between 0 and 1; got 2.")
    >>> print(error)
    max_loss must lie strictly between 0 and 1; got 2.
    >>> error.as_option()
    '--max-loss must lie strictly between 0 and 1; got 2.'
    """

    def __init__(self, parameter: str, rule: str) -> None:
        super().__init__(parameter, rule)
        self.parameter, self.rule = parameter, rule

    def __str__(self) -> str:
        return f"{self.parameter} {self.rule}"

    def as_option(self) -> str:
        """Message with the parameter as an option of the command line."""
        return f"--{self.parameter.replace('_', '-')} {self.rule}"


class InvalidTypeError(InvalidInputError, TypeError):
    """A table is of a type that cannot be read as numbers; scikit-learn asks for a ``TypeError`` there."""


class FullModelDownError(ThriftyError):
    """The full model did not answer, and no stage is to answer instead; ``reason`` is why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the full model did not answer ({reason}). Ask again later.")
        self.reason = reason


class FullModelFailedError(InvalidInputError):
    """The full model raised an error when it was asked about rows that are as it was fitted on."""

    reason = "failed"


class NoPriceOfMistakesError(InvalidInputError, AttributeError):
    """The total cost of tests and mistakes is undefined because mistakes have no price; an ``AttributeError``, too."""


class InvalidAnswerError(InvalidInputError):
    """A model returned invalid answers: wrong shape, not finite, or not probabilities or labels of the task.

    Attributes
    ----------
    who : str
        What the model is for, and what it is.
    rule, found, way_out : str
        What an answer must be, what the first one that is not looks like, and what to do about it.
    rows : list of int
        The rows whose answers break the rule, as the table of the user counts them; empty where all do.
    n_rows : int
        Number of rows that the model was asked about.
    table : str
        The argument of the user's call that holds those rows.
    """

    table = "X"

    def __init__(
        self,
        who: str,
        rule: str,
        found: str,
        way_out: str,
        rows: Sequence[int] = (),
        n_rows: int = 0,
    ) -> None:
        super().__init__(who, rule, found, way_out, rows, n_rows)
        self.who, self.rule, self.found, self.way_out = who, rule, found, way_out
        self.rows, self.n_rows = list(rows), n_rows

    def __str__(self) -> str:
        where = ""
        if self.rows:
            shown = ", ".join(map(str, self.rows[:_ROWS_SHOWN]))
            more = ", ..." if len(self.rows) > _ROWS_SHOWN else ""
            where = (
                f" in row {self.rows[0]}" if self.table == "X" else f" in row {self.rows[0]} of {self.table}"
            )
            where += f" (wrong in {len(self.rows):,} of {self.n_rows:,} rows: {shown}{more})"
        return f"{self.who} must give {self.rule}; got {self.found}{where}. {self.way_out}"


@contextmanager
def renumber_rows_in_errors(rows: Any = None, who: str = FULL_MODEL, table: str = "X") -> Iterator[None]:
    """Rewrite row numbers and model names of ``InvalidAnswerError`` into those of the caller.

    Parameters
    ----------
    rows : ndarray of int, optional
        The caller's numbers of the rows that the model is asked about; None leaves numbers as they are.
    who : str
        Name of the model in messages.
    table : str
        The argument that holds the rows; where their numbers are given, refusals about other tables stay as they are.
    """
    try:
        yield
    except InvalidAnswerError as error:
        if rows is None:
            error.table = table if error.table == "X" else error.table
        elif error.table == table:
            error.rows, error.table = [int(rows[row]) for row in error.rows], "X"
        # The innermost context knows the role of the model: a name that was set stays.
        if error.who.startswith(FULL_MODEL):
            error.who = who + error.who.removeprefix(FULL_MODEL)
        raise


class PurchaseFailedError(ThriftyError, RuntimeError):
    """A source or the full model failed, and ``on_failure`` is "raise".

    Attributes
    ----------
    receipt : Receipt or None
        Everything that was bought and answered before; None where it was not bought by ``buy``.
    """

    def __init__(self, message: str, receipt: Any = None) -> None:
        super().__init__(message)
        self.receipt = receipt


class RowsLeftBehindError(ThriftyError):
    """Some rows of a batch cannot go on from their stage; caught by the walk of the batch."""

    def __init__(self, rows: Any) -> None:
        super().__init__(f"{len(rows)} rows cannot go on")
        self.rows = rows


class UnreadableRowsError(InvalidInputError):
    """A stage cannot score some rows; ``rows`` are their numbers."""

    def __init__(self, message: str, rows: Any = ()) -> None:
        super().__init__(message)
        self.rows = rows


class DataUnavailableError(InvalidInputError, FileNotFoundError):
    """A data set is not where it was looked for, or is not the file it should be."""


class RemoteFailure(ThriftyError):  # noqa: N818 - what is counted is a failure of a service
    """A service that is asked over HTTP gave no answer, or none that can be used.

    Attributes
    ----------
    reason : str
        A word to count it under: "connect", "timeout", "closed", "bad_http", "status_500" and the like, "too_large",
        "bad_json", "shape", "datatype", "nan", "not_probabilities"; or nothing was sent: "breaker_open",
        "too_many_in_flight", "deadline", "not_started".
    retry_after : float, optional
        Seconds after which the service asks to be called again.
    """

    def __init__(self, reason: str, words: str, retry_after: float | None = None) -> None:
        super().__init__(reason, words)
        self.reason, self.words, self.retry_after = reason, words, retry_after

    def __str__(self) -> str:
        return f"no answer over HTTP ({self.reason}): {self.words}."


class OptimisticFullModelWarning(UserWarning):
    """The full model looks perfect on the rows given: it was probably trained on them."""


class FullModelFailedWarning(UserWarning):
    """The full model failed on some rows, which were answered without it."""


class FullModelNotWorthItWarning(UserWarning):
    """A cheap stage answers better than the full model, whose calls are not worth their price."""


class FullModelOutsideWarning(UserWarning):
    """A file does not hold the full model, which must be given again when it is loaded."""


class RefittedFullModelWarning(UserWarning):
    """A fitted full model is cloned and fitted again, because it is not in a ``FrozenEstimator``."""


class MissingSupportWarning(UserWarning):
    """A model was asked, or a set of columns bought, too rarely to know what it would have answered elsewhere."""


class InformativeBlanksWarning(UserWarning):
    """Which cells are blank tells the target: a purchase by new rows will not come back blank in the same way."""


class MissingEvidenceWarning(UserWarning):
    """A model answered without the evidence that the router was fitted with."""


class UnspentBudgetWarning(UserWarning):
    """A fit spends less than its budget, although the full model would answer better."""


class NothingSavedWarning(UserWarning):
    """A loss can be bounded only by sending every row to the full model."""


class OtherVersionWarning(UserWarning):
    """A pickle was written by another version of thrifty; files of ``save`` are kept between versions."""


class DoubtfulRowsWarning(UserWarning):
    """Training rows are too few, lack labels, or hold numbers or dates that are written as text."""


class SlowModelWarning(UserWarning):
    """An estimator took far longer than was measured at the fit."""
