"""``save`` and ``load``: estimators and chains in files."""

import importlib.util
from pathlib import Path
from typing import Any

from thrifty.bundle.container import DEFAULT_MAX_BYTES, OF_THRIFTY, is_of_thrifty
from thrifty.bundle.full_models import FullMode
from thrifty.bundle.objects import from_bytes, to_bytes
from thrifty.engine.full.stored import booster_model
from thrifty.errors import InvalidInputError
from thrifty.files import AnyPath, read_capped, write_atomically


def save(
    thing: Any,
    path: AnyPath,
    *,
    full: FullMode = "inside",
    evidence: bool = True,
    private_key: Any = None,
) -> None:
    """Write a fitted estimator or a chain into one file, without pickle.

    Parameters
    ----------
    thing : fitted estimator of thrifty, Chain, or a model of another library whose arrays are known
        What to save. Constructor arguments and learned attributes that are plain data are kept; models among the
        arguments are not, beyond their place in the chain.
    path : path
        The file; an old one is replaced in one step, or left as it is if anything fails.
    full : {"inside", "outside", "absent"}, default="inside"
        What becomes of the full model (f0): written into the file, where it is made of trees, linear, or a support
        vector machine; kept outside, recognised by its answers and given again when loading; or forgotten. A model
        that has no form in a file stays outside, with a ``FullModelOutsideWarning``.
    evidence : bool, default=True
        Whether to keep the rows that operating points were evaluated on; a file without them is smaller, answers
        alike, and has no ``frontier_``.
    private_key : Ed25519PrivateKey of cryptography, PEM bytes or path of a PEM file, optional
        Signs the file, for those who load it with the ``public_key`` that belongs to it. Needs ``thrifty[signing]``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from thrifty import DynaModLinClassifier, load, save
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> f0 = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = DynaModLinClassifier(f0, gamma=0.02, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "cancer.thrifty"
    ...     save(clf, path)
    ...     again = load(path)
    >>> bool((again.predict(X) == clf.predict(X)).all())
    True
    """
    write_atomically(path, to_bytes(thing, full=full, evidence=evidence, private_key=private_key))


def load(
    path: AnyPath,
    *,
    full: Any = None,
    estimators: Any = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    public_key: Any = None,
) -> Any:
    """Read what ``save`` or `thrifty fit` wrote: an object that answers exactly as the one that was saved.

    Parameters
    ----------
    path : path
        The file.
    full : fitted classifier, FrozenEstimator, callable or Chain, optional
        The full model (f0). Where it stayed outside the file, it must answer as the one that the file was saved with;
        without it, everything works that needs no full model. Otherwise it takes the place of the one in the file.
    estimators : dict of str to estimator, optional
        Estimators of a ``CascadeClassifier`` or ``CascadeRegressor`` by name: those that stayed outside the file, and
        must answer as the ones it was saved with, and others that take the place of those in it.
    max_bytes : int, default=2**30
        Larger files are refused.
    public_key : Ed25519PublicKey of cryptography, PEM bytes or path of a PEM file, optional
        Refuses, before anything in it is read, a file that was not signed with the ``private_key`` that belongs to
        it. Needs ``thrifty[signing]``.
    """
    data = read_capped(path, max_bytes)
    if not is_of_thrifty(data):
        raise InvalidInputError(f"{path} is not a file of thrifty. {OF_THRIFTY}")
    return from_bytes(data, full=full, estimators=estimators, max_bytes=max_bytes, public_key=public_key)


def load_model(path: AnyPath) -> Any:
    """Load a model from a .thrifty file, or from a file of LightGBM or XGBoost, as arrays; never a pickle."""
    kind = Path(path).suffix.lower()
    if kind == ".thrifty":
        return load(path)
    library = {".txt": "LightGBM", ".json": "XGBoost", ".ubj": "XGBoost"}.get(kind)
    if library is None:
        raise InvalidInputError(
            f"{path} must be a .thrifty file, a .txt file of LightGBM, or a .json or .ubj file of XGBoost; a pickle is "
            f"never opened, because it may run anything. Write it with thrifty.save, or with its own save_model; any "
            f"other model is given to the estimators in Python."
        )
    if importlib.util.find_spec(library.lower()) is None:
        raise InvalidInputError(
            f"{path} needs {library}, which is not installed. Install it with `pip install thrifty[boosters]`."
        )
    data = read_capped(path, DEFAULT_MAX_BYTES)
    try:
        if library == "LightGBM":
            from lightgbm import Booster

            booster = Booster(model_str=data.decode())
        else:
            from xgboost import Booster as OtherBooster

            booster = OtherBooster(model_file=bytearray(data))
    except Exception as error:  # both raise classes of their own, which need not be importable here
        reason = " ".join(str(error).split())[:200]
        raise InvalidInputError(
            f"{path} cannot be read as a model of {library}: {reason} Write it with save_model."
        ) from error
    return booster_model(booster).validate()
