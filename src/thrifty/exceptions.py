"""Every error and warning that thrifty raises on purpose."""

__all__ = [
    "DataUnavailableError",
    "FullModelNotWorthItWarning",
    "InvalidInputError",
    "InvalidTypeError",
    "NothingSavedWarning",
    "OptimisticFullModelWarning",
    "RefittedFullModelWarning",
    "ThriftyError",
]


class ThriftyError(Exception):
    """Root of every error raised on purpose."""


class InvalidInputError(ThriftyError, ValueError):
    """An argument or a table breaks a rule; the message names it, the value found and the way out."""


class InvalidTypeError(InvalidInputError, TypeError):
    """A table is of a type that cannot be read as numbers; scikit-learn asks for a ``TypeError`` there."""


class DataUnavailableError(InvalidInputError, FileNotFoundError):
    """A data set is not where it was looked for, or is not the file it should be."""


class OptimisticFullModelWarning(UserWarning):
    """The full model looks perfect on the rows given: it was probably trained on them."""


class FullModelNotWorthItWarning(UserWarning):
    """A cheap model answers better than the full one: asking it is money lost."""


class RefittedFullModelWarning(UserWarning):
    """A full model that is fitted already will be fitted again: it was not frozen."""


class NothingSavedWarning(UserWarning):
    """A loss can be bounded only by sending every row to the full model."""
