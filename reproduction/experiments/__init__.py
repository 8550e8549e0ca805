"""The paper's figures and tables, run again; and one table of other papers."""

from collections.abc import Callable
from functools import partial

from reproduction.experiments.experiment import Outcome, Run

__all__ = ["experiments"]


def experiments() -> dict[str, Callable[[Run], Outcome]]:
    """Every experiment by name, in the order in which ``python -m reproduction all`` runs those of the paper.

    Each has a file of settings in ``configs/`` that bears its name.
    """
    # Imported late: whoever needs one module of this package must not wait for all of them.
    from reproduction.experiments import acquisition, rank, synthetic, table1
    from reproduction.experiments.figures import FOREST_FIGURES, run_figure
    from reproduction.experiments.letters import BOOSTED_LETTERS, LINEAR_LETTERS

    figures = {
        one.name: partial(run_figure, one) for one in (LINEAR_LETTERS, BOOSTED_LETTERS, *FOREST_FIGURES)
    }
    return {
        "synthetic": synthetic.run,
        # Letters' boosted pairs are compared with the linear ones, so those come first.
        "letters_linear": figures["letters_linear"],
        "letters_boosted": figures["letters_boosted"],
        "miniboone": figures["miniboone"],
        "forest": figures["forest"],
        "rank": rank.run,
        "scene15": figures["scene15"],
        "cifar": figures["cifar"],
        "table1": table1.run,
        "cross_fit_miniboone": figures["cross_fit_miniboone"],
        "cross_fit_letters": figures["cross_fit_letters"],
        "acquisition": acquisition.run,
    }
