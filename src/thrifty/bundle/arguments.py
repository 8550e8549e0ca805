"""Constructor arguments and learned attributes as JSON, and what stands in the place of those a file does not hold."""

from typing import Any, NoReturn

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags

from thrifty.bundle.context import Writing
from thrifty.bundle.fields import Fields, NotPlainError
from thrifty.errors import InvalidInputError
from thrifty.prices.prices import Prices

__all__ = ["NotStored", "pack_attributes", "pack_parameters", "unpack_attributes", "unpack_parameters"]

_MODELS = ("full", "cheap", "local")
"""Parameters that are models: they are part of the chain, or not stored at all."""

_KNOWN_OTHERWISE = (
    "classes_",
    "features_",
    "threshold_",
    "n_features_in_",
    "feature_names_in_",
    "chain_",
    "evidence_",
    "certificate_",
)
"""Attributes that follow from the chain, or have a part of their own in a file."""

_ONCE_STORED = ("expected_cost_", "expected_score_")
"""What files of the first format keep, and what follows from the policy now."""


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


def pack_parameters(estimator: Any, writing: Writing) -> dict[str, Any]:
    """Constructor arguments; models among them are only named."""
    return {
        name: _pack_parameter(name, value, writing)
        for name, value in estimator.get_params(deep=False).items()
    }


def _pack_parameter(name: str, value: Any, writing: Writing) -> dict[str, Any]:
    if value is None or name not in _MODELS:
        try:
            if isinstance(value, Prices):
                return {"prices": writing.packer.value(value.as_dict())}
            return {"value": writing.packer.value(value)}
        except NotPlainError:
            pass
    stand_in = value if isinstance(value, NotStored) else NotStored.of(value)
    return {"not_stored": stand_in.what, "sparse": stand_in.sparse, "allow_nan": stand_in.allow_nan}


def unpack_parameters(fields: Fields, estimator: Any) -> dict[str, Any]:
    """Every constructor argument; those of a version that had fewer keep their defaults."""
    known = estimator.get_params(deep=False)
    unknown = sorted(set(fields.names) - set(known))
    if unknown:
        raise fields.refusal(unknown[0][:30], f"be a parameter of {type(estimator).__name__}", "another name")
    return {name: _unpack_parameter(fields.inside(name)) for name in fields.names}


def _unpack_parameter(fields: Fields) -> Any:
    if fields.has("value"):
        return fields.value("value")
    if fields.has("prices"):
        arguments = fields.value("prices")
        if not isinstance(arguments, dict) or set(arguments) - set(Prices().as_dict()):
            raise fields.refusal("prices", "be the arguments of Prices", arguments)
        return Prices.from_dict(arguments)
    return NotStored(fields.text("not_stored")[:100], fields.flag("sparse"), fields.flag("allow_nan"))


def pack_attributes(estimator: Any, writing: Writing) -> dict[str, Any]:
    """Learned attributes that are plain data."""
    packed = {}
    for name, value in vars(estimator).items():
        if _is_attribute(name):
            try:
                packed[name] = writing.packer.value(value)
            except NotPlainError:
                continue  # learned objects that are no plain data serve nothing; they are made again by a fit
    return packed


def unpack_attributes(fields: Fields, estimator: Any) -> dict[str, Any]:
    """Learned attributes; a name that means something else in an estimator of this class is refused."""
    for name in fields.names:
        taken = hasattr(type(estimator), name) and name not in _ONCE_STORED
        if not _is_attribute(name) or taken:
            raise fields.refusal(name[:30], "be a learned attribute", "another name")
    return {name: fields.value(name) for name in fields.names if name not in _ONCE_STORED}


def _is_attribute(name: str) -> bool:
    learned = name.isidentifier() and name.endswith("_") and not name.startswith("_")
    return learned and name not in _KNOWN_OTHERWISE
