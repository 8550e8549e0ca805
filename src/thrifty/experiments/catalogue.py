"""Every experiment by name, in the order in which ``thrifty paper all`` runs them."""

from importlib import import_module

from thrifty.experiments.outcome import Outcome, Run

__all__ = ["EXPERIMENTS", "run_experiment"]

# Letters' boosted pairs are compared with the linear ones, so those come first.
EXPERIMENTS = (
    "synthetic",
    "letters_linear",
    "letters_boosted",
    "miniboone",
    "forest",
    "rank",
    "scene15",
    "cifar",
    "table1",
)
"""Each is a module of this package with a function ``run(how)``, and a file of settings of the same name."""


def run_experiment(name: str, how: Run) -> Outcome:
    """Run one; only its own module is imported."""
    outcome: Outcome = import_module(f"thrifty.experiments.{name}").run(how)
    return outcome
