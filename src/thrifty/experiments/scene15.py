"""Scene 15, of which the paper says only that gains were marginal: photographs described by three descriptors.

Whoever computes one number of a descriptor has computed them all: a descriptor is one purchase. Prices of detectors, as
the literature has them, are not available, so a descriptor costs as many units as it has numbers: GIST 20, PHOG 59,
LBP 40. The task is ours: the first eight kinds of scene against the last seven.
"""

import numpy as np

from thrifty.datasets import load_scene15
from thrifty.experiments.figure import MARGINAL_CLAIMS, Figure, run_figure
from thrifty.experiments.fitting import thinned_rows
from thrifty.experiments.outcome import Outcome, Run
from thrifty.experiments.priced import Priced, SweepSettings
from thrifty.experiments.settings import read_settings

__all__ = ["NAME", "run"]

NAME = "scene15"

NOTES = (
    (
        "A descriptor is bought whole, at one unit per number in it (GIST 20, PHOG 59, LBP 40): the detectors' "
        "prices of the literature are not available. With three purchases a figure has few places to differ."
    ),
    "The source does not name its fifteen codes: the classes are the first eight against the last seven.",
)


def run(how: Run) -> Outcome:
    """Run the experiment, draw the picture and return the numbers."""
    settings = read_settings(SweepSettings, NAME, profile=how.profile, config=how.config)
    split, views = load_scene15(how.data)
    prices = np.bincount(views)[views].astype(np.float64)
    figure = Figure(
        NAME,
        "Scene 15, three descriptors: test accuracy by budget",
        Priced(thinned_rows(split, settings.rows, settings.seed), prices, views),
        settings.forest(),
        claims=MARGINAL_CLAIMS,
        notes=NOTES,
    )
    return run_figure(figure, settings, how)
