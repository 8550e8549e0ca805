"""DynaMod estimators from flat settings, as experiments sweep them."""

from typing import Any


def estimator_of(kind: Any, *models: Any, **settings: Any) -> Any:
    """A DynaMod estimator; settings that are not its own are those of its ``options``."""
    estimator = kind(*models)
    names = estimator.get_params(deep=False)
    return estimator.set_params(
        **{name if name in names else f"options__{name}": value for name, value in settings.items()}
    )
