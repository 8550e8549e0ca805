"""Validation of training rows, weights, targets and parameters; errors name the column, the row and the value."""

import warnings
from collections.abc import Mapping
from numbers import Integral, Number
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_random_state, get_tags
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_non_negative, validate_data

from thrifty.arrays import Floats, Labels, check_unmasked, unmasked
from thrifty.engine.evidence.hypothesis_tests import check_max_loss
from thrifty.engine.full.crossfit import TrainingRows, assign_folds
from thrifty.engine.full.model import is_estimator
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.table.columns import Levels, categories_problem, is_missing, learn_levels, plain_table
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import one_class
from thrifty.engine.walk.policy import check_threshold
from thrifty.errors import DoubtfulRowsWarning, InvalidInputError, InvalidTypeError, listed

_OTHER_NAMES = "The feature names should match those that were passed during fit."
"""Beginning of scikit-learn's error for other column names or another order; ``check_estimator`` requires it."""

_WAY_OUT = (
    " OneHotEncoder turns categories into columns of 0 and 1. The estimators whose names begin with Budgeted or "
    "DynaModGbrt, such as BudgetedClassifier, read text, categories and dates as they are."
)

FEW_ROWS = 20
"""A fit on fewer rows warns: parts of fewer than four rows are held out of five."""

MAX_RATIO = 1e100
"""Largest ratio of two weights: beyond it, sums of weighted rows lose the light ones."""

MAX_COUNT = 100
"""Largest mean of whole weights that count rows; larger ones are relative, as weights with fractions are."""

_PLAIN_TYPES = frozenset(
    map(np.dtype, ("float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool"))
)
"""Dtypes that become float64 without further checks."""


def check_training_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, cv: Any, seed: int, *, completes: bool = False
) -> TrainingRows:
    """Validate X, y and weights, and assign folds; rows of weight zero are left out.

    With ``completes`` blank cells are accepted, because they are completed before any model reads them.
    """
    if y is None:
        raise InvalidInputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    table = Table.of(X)
    numbers, y = validated(estimator, table, _plain_labels(y), reset=True, completes=completes)
    weight, class_weight = check_weights(sample_weight, numbers), getattr(estimator, "class_weight", None)
    task = estimator._task_of(y, weight)
    encoded = task.encode("y", y, len(y))
    if class_weight is not None:
        weight = check_weights(weight * _weights_by_class(class_weight, y, task.classes), numbers)
    kept = np.flatnonzero(weight > 0)
    # A splitter of the user splits all rows given; a number of folds splits the rows that count.
    folds = (
        None
        if isinstance(cv, Integral)
        else assign_folds(cv, numbers, encoded, task.strata(encoded), seed, task.query_of(encoded))[kept]
    )
    every_row, table = numbers, table.for_fit(numbers)
    if len(kept) < len(weight):
        table, numbers = table.take(kept), numbers[kept]
    encoded = encoded[kept]
    strata, query = task.strata(encoded), task.query_of(encoded)
    if len(np.unique(strata)) < 2:
        raise one_class(task.decode(encoded[:1]))
    if len(kept) < FEW_ROWS:
        warnings.warn(
            f"there are {len(kept)} rows, too few to learn from some and to evaluate on the others: the costs and "
            f"scores that are expected may not hold for new rows. Give {FEW_ROWS} rows or more.",
            DoubtfulRowsWarning,
            stacklevel=2,
        )
    return TrainingRows(
        table=table,
        y=encoded,
        task=task,
        weight=weight[kept],
        folds=assign_folds(cv, numbers, encoded, strata, seed, query) if folds is None else folds,
        weighted=bool(np.any(weight[kept] != 1.0)),
        every_row=every_row,
    )


def validated(estimator: Any, X: Any, *y: Any, reset: bool, completes: bool = False) -> Any:
    """Validate X, a ``Table`` or what makes one, (and y) and return numbers.

    Errors name the column, and masked cells are missing.
    """
    table = Table.of(X)
    if not reset and not y:
        plain = _plain_numbers(estimator, table)
        if plain is not None:
            return plain
    for labels in y:
        check_unmasked("y", labels)
        _refuse_missing(labels)
    table = _plain_table(estimator, table, reset)
    all_tags = get_tags(estimator)
    tags = all_tags.input_tags
    # Beside text the full model itself refuses what it cannot read: a missing level need not be missing for it.
    allow_nan = (
        completes
        or tags.allow_nan
        or (_reads_levels(estimator) and known_levels(estimator, reset) is not None)
    )
    # The target of a ranker has two columns, relevance and query.
    columns = {"multi_output": True} if y and all_tags.target_tags.two_d_labels else {}
    try:
        return validate_data(
            estimator,
            unmasked(table.native),
            *y,
            reset=reset,
            accept_sparse="csr" if tags.sparse else False,
            ensure_all_finite="allow-nan" if allow_nan else True,
            dtype=np.float64,
            **columns,
        )
    except (TypeError, ValueError, OverflowError) as error:
        culprit = table.describe_bad_column(allow_missing=allow_nan)
        if "encode it" in culprit and table.kind and not _reads_levels(estimator):
            culprit += _WAY_OUT
        is_type = isinstance(error, TypeError)
        # Numpy's messages about types do not name the column.
        message = "X must hold numbers." if is_type and culprit and table.kind else str(error).rstrip()
        if message.startswith("Input X contains NaN"):
            message = _who_reads_no_missing(estimator) or message
        message = message if message.endswith((".", "\n")) or not culprit else f"{message}."
        if message.startswith(_OTHER_NAMES):
            message += _columns_of_fit(estimator, table)
        if message.startswith("Input y contains infinity"):
            message += f" The first is in row {int(np.argmax(np.isinf(np.asarray(y[0], dtype=np.float64))))}."
        raise (InvalidTypeError if is_type else InvalidInputError)(f"{message}{culprit}") from error


def _plain_numbers(estimator: Any, table: Table) -> Floats | None:
    """A table as numbers if a quick check finds nothing unusual, else None.

    For one row scikit-learn's checks take longer than the prediction; they are used for unusual input only.
    """
    names, levels = getattr(estimator, "feature_names_in_", None), known_levels(estimator)
    if levels is not None:
        if names is None or not table.kind or table.columns != names.tolist():
            return None
        numbers = levels.numbers(table)
        return numbers if len(numbers) and not np.isinf(numbers).any() else None
    X = table.native
    if type(X) is np.ndarray:
        if names is not None or X.dtype != np.float64:
            return None
        numbers = X
    elif names is not None and type(X).__name__ == "DataFrame" and table.kind == "pandas":
        if X.columns.tolist() != names.tolist() or not _PLAIN_TYPES.issuperset(X.dtypes):
            return None
        numbers = X.to_numpy(dtype=np.float64)
    else:
        return None
    if numbers.ndim != 2 or len(numbers) == 0 or numbers.shape[1] != estimator.n_features_in_:
        return None
    if np.isfinite(numbers).all():
        return numbers
    allows_missing = get_tags(estimator).input_tags.allow_nan and not np.isinf(numbers).any()
    return numbers if allows_missing else None


def _who_reads_no_missing(estimator: Any) -> str:
    """Error message naming the model that does not accept missing values; empty if it is the estimator itself."""
    if not getattr(estimator, "_accepts_missing", False):
        return ""
    for name, model in estimator.get_params(deep=False).items():
        if _reads_missing(model):
            continue
        behind = getattr(model, "estimator", model)
        if inside := _who_reads_no_missing(behind):
            return inside
        step = next((step for _, step in getattr(behind, "steps", ()) if not _reads_missing(step)), None)
        called = getattr(behind, "what", type(behind).__name__)
        called += "" if step is None else f" with {type(step).__name__}"
        return (
            f"Input X contains NaN, and the model given as {name!r}, a {called}, does not accept missing values; the "
            f"stages of {type(estimator).__name__} do. Give a model that reads them too, such as scikit-learn's "
            f"HistGradientBoosting, or a Pipeline that begins with an imputer."
        )
    return ""


def _reads_missing(model: Any) -> bool:
    """True for models that accept missing values, by scikit-learn's tags."""
    return not is_estimator(model) or bool(get_tags(model).input_tags.allow_nan)


def refuse_keywords(estimator: Any, unknown: Mapping[str, Any]) -> None:
    """Refuse keywords that ``fit`` does not take; for those of the constructor, the error says so."""
    for name in unknown:
        called = type(estimator).__name__
        is_parameter = name in estimator.get_params(deep=False)
        way_out = f": write {called}(..., {name}=...).fit(X, y)" if is_parameter else ""
        raise InvalidTypeError(
            f"{called}.fit takes no argument {name!r}{'; it is a parameter of the constructor' if is_parameter else ''}"
            f"{way_out}."
        )


def _reads_levels(estimator: Any) -> bool:
    """True for estimators that accept text, categories and dates, and missing values then."""
    return bool(getattr(estimator, "_accepts_levels", False))


def _plain_table(estimator: Any, table: Table, reset: bool) -> Table:
    """A table with numbers instead of text, categories and dates, for estimators that read these."""
    if not _reads_levels(estimator):
        return table
    if reset:
        # A chain used as the full model reads the same numbers: its levels count.
        full = getattr(estimator, "full", None)
        model = getattr(full, "estimator", full)
        behind = getattr(getattr(model, "chain_", model), "levels", None)
        estimator._levels = learn_levels(table) if behind is None else behind
        _warn_of_disguises(table, estimator._levels)
        return plain_table(table, estimator._levels)
    levels = known_levels(estimator)
    if levels is not None and table.kind and hasattr(estimator, "feature_names_in_"):
        # Levels are looked up by the place of the column, so names are checked first.
        try:
            validate_data(estimator, table.native, reset=False, skip_check_array=True, ensure_2d=False)
        except ValueError as error:
            raise InvalidInputError(f"{str(error).rstrip()}{_columns_of_fit(estimator, table)}") from error
    return plain_table(table, levels)


def _columns_of_fit(estimator: Any, table: Table) -> str:
    """How to give the columns of the fit, for tables with others."""
    names = estimator.feature_names_in_.tolist()
    missing = [name for name in names if name not in table.columns]
    in_order = f"X[{'list(clf.feature_names_in_)' if table.kind == 'polars' else 'clf.feature_names_in_'}]"
    if not missing:
        return f"\nGive {in_order}, which has the columns of the fit, in their order."
    advice = f"\nAdd {listed(missing)}, and give {in_order}, in the order of the fit."
    read = [names[column] for column in getattr(estimator, "features_", range(len(names)))]
    unread = [name for name in missing if name not in read]
    if unread:
        advice += f" No stage reads {listed(unread)}; clf.features_ numbers what stages read: {listed(read)}."
    return advice


def _warn_of_disguises(table: Table, levels: Levels | None) -> None:
    """Warn of columns of text that seem to hold something else than categories; declared categories do not."""
    for column in () if levels is None else levels.columns:
        if not table.types[column].startswith(("category", "categorical", "enum")):
            problem = categories_problem(table.columns[column], table.values(column), 0)
            if problem is not None:
                warnings.warn(
                    f"{problem} Every text is read as a category; declare the column as categories if that is meant.",
                    DoubtfulRowsWarning,
                    stacklevel=2,
                )


def _refuse_missing(y: Any) -> None:
    """Refuse targets that are missing, by their first row."""
    cells = np.asarray(y)
    if cells.dtype.kind not in "fO" or cells.ndim not in (1, 2):
        return
    is_float = cells.dtype.kind == "f"
    missing = np.isnan(cells) if is_float else np.vectorize(is_missing, otypes=[bool])(cells)
    rows = np.flatnonzero(missing if cells.ndim == 1 else missing.any(axis=1))
    if len(rows):
        raise InvalidInputError(
            f"Input y contains NaN: it is missing in {len(rows):,} of {len(cells):,} rows, the first of them row "
            f"{rows[0]}. Leave those rows out."
        )


def known_levels(estimator: Any, reset: bool = False) -> Levels | None:
    """Levels of the columns, of the finished fit or, with ``reset``, of the running one."""
    chain = None if reset else vars(estimator).get("chain_")
    return vars(estimator).get("_levels") if chain is None else chain.levels


def _plain_labels(y: Any) -> Any:
    """Labels of pandas' nullable types as plain arrays, so that integers stay integers."""
    plain = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if plain is None or not hasattr(y, "isna") or y.isna().any():
        return y
    return y.to_numpy(dtype=plain)


def check_weights(sample_weight: Any, numbers: Any) -> Floats:
    """Check sample weights, one for each row and not all zero, and bring them to the scale of counts.

    Whole numbers count rows: a row of weight two is that row given twice. Other weights are relative, and are
    multiplied by a power of two, which rounds nothing, so that their mean is about one: trees are regularised on that
    scale. Equal weights are no weights.
    """
    check_unmasked("sample_weight", sample_weight)
    try:
        n_rows = numbers.shape[0]
        if sample_weight is None or isinstance(sample_weight, Number):
            sample_weight = np.full(n_rows, 1.0 if sample_weight is None else sample_weight)
        weight = check_array(
            sample_weight, ensure_2d=False, dtype=np.float64, order="C", input_name="sample_weight"
        )
        if weight.shape != (n_rows,):
            raise ValueError(f"its shape must be ({n_rows},); got {weight.shape}.")
        check_non_negative(weight, "`sample_weight`")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"sample_weight must be a number >= 0 for each row: {error}") from error
    if not weight.any():
        raise InvalidInputError("sample_weight must not be zero for every row; got zeros only.")
    heavy, light = float(weight.max()), float(weight[weight > 0].min())
    if heavy == light:
        return np.where(weight > 0, 1.0, 0.0)
    if light < heavy / MAX_RATIO:
        raise InvalidInputError(
            f"sample_weight must be at most {MAX_RATIO:g} times the smallest one that is not zero; got {light:g} to "
            f"{heavy:g}. Give rows that hardly count the weight 0."
        )
    if not 1 / MAX_RATIO <= heavy <= MAX_RATIO:  # sums would overflow, or lose digits
        weight = np.ldexp(weight, -int(np.frexp(heavy)[1]))
    mean = float(np.mean(weight[weight > 0]))
    if mean <= MAX_COUNT and np.array_equal(weight, np.rint(weight)):
        return np.asarray(weight, dtype=np.float64)
    return np.ldexp(weight, -round(np.log2(mean)))


def _weights_by_class(class_weight: Any, y: Labels, classes: Labels) -> Floats:
    """Weight of each row from ``class_weight``: "balanced", or a dict by label; labels not in it have weight 1."""
    if isinstance(class_weight, dict):
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown:
            raise InvalidInputError(
                f"class_weight names {unknown[0]!r}, which is not a label of y; those are {classes.tolist()}."
            )
        weights = {
            label: check_amount(f"class_weight of {label!r}", value) for label, value in class_weight.items()
        }
        class_weight = {label: weights.get(label, 1.0) for label in classes.tolist()}
    elif not (isinstance(class_weight, str) and class_weight == "balanced"):
        raise InvalidInputError(
            f'class_weight must be None, "balanced" or a dict from labels to weights; got {class_weight!r}.'
        )
    return np.asarray(compute_sample_weight(class_weight, y), dtype=np.float64)


def check_seed(random_state: Any) -> int:
    """Integer seed drawn from ``random_state``."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise InvalidInputError(
            f"random_state must be None, a whole number or a RandomState; got {random_state!r}."
        ) from error


def check_share(name: str, value: Any, *, meaning: str) -> float:
    """Check that a value is in [0, 1]; the error gives its meaning."""
    if not isinstance(value, int | float | np.integer | np.floating) or not 0.0 <= float(value) <= 1.0:
        raise InvalidInputError(f"{name} must lie in [0, 1]; got {value!r}. It is {meaning}.")
    return float(value)


def check_cap(p_full: Any) -> None:
    """Check ``p_full``: None or a share."""
    if p_full is not None:
        check_share("p_full", p_full, meaning="the share of samples allowed to reach the full model")


def check_count(name: str, value: Any, *, min_value: int = 1, max_value: int | None = None) -> int:
    """Check a whole number in [``min_value``, ``max_value``]."""
    fits = not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= min_value
    if not fits or (max_value is not None and int(value) > max_value):
        rule = f">= {min_value}" if max_value is None else f"in [{min_value}, {max_value}]"
        raise InvalidInputError(f"{name} must be a whole number {rule}; got {value!r}.")
    return int(value)


def check_goal(*, may_be_none: bool = False, **goals: Any) -> dict[str, Any]:
    """Check that exactly one of budget, max_loss and threshold is given, and return it by name."""
    goal = {name: value for name, value in goals.items() if value is not None}
    if len(goal) > 1 or not (goal or may_be_none):
        shown = " and ".join(f"{name}={value!r}" for name, value in goal.items()) or "none"
        raise InvalidInputError(f"give one of {', '.join(goals)}; got {shown}.")
    for name, value in goal.items():
        if name == "max_loss":
            check_max_loss(value)
        if isinstance(value, Mapping):
            goal[name] = dict(value)
        else:
            goal[name] = check_threshold(value) if name == "threshold" else check_amount(name, value)
    return goal
