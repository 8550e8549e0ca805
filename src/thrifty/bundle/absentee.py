"""What stands in the place of a constructor argument that a file does not hold."""

from typing import Any, NoReturn

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags

from thrifty.exceptions import InvalidInputError

__all__ = ["NotStored"]


class NotStored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A model, splitter or generator among the parameters of an estimator that was saved.

    It remembers which tables the original could read, so that a loaded estimator accepts and refuses the same tables as
    before, and it keeps ``fit`` from going on with a default in its place.

    Parameters
    ----------
    what : str
        Class of the original.
    sparse, allow_nan : bool
        Whether the original could read sparse tables and missing values.
    """

    def __init__(self, what: str = "object", sparse: bool = True, allow_nan: bool = True) -> None:
        self.what = what
        self.sparse = sparse
        self.allow_nan = allow_nan

    @classmethod
    def of(cls, value: Any) -> "NotStored":
        """Stand in for a value; what has no ``fit`` sets no limit to the tables."""
        name = value.__name__ if isinstance(value, type) else type(value).__name__
        if not hasattr(value, "fit") or isinstance(value, type):
            return cls(name)
        tags = get_tags(value).input_tags
        return cls(name, bool(tags.sparse), bool(tags.allow_nan))

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise InvalidInputError(
            f"a {self.what} among the parameters was not stored in the bundle, so this estimator cannot be fitted "
            f"again. Give it first, with set_params."
        )

    def predict_proba(self, X: Any) -> NoReturn:
        """Refuse."""
        self.fit(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.sparse
        tags.input_tags.allow_nan = self.allow_nan
        return tags
