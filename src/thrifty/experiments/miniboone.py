"""MiniBooNE, figure 3 (a): electron neutrinos against muon neutrinos, 50 features at 1 each, f0 a random forest.

The data is the balanced subset of 5,000 events in its published split, not the full set that the paper's
45,523 / 19,510 / 65,031 rows come from.
"""

from thrifty.datasets import load_miniboone
from thrifty.experiments.figure import Figure, run_figure
from thrifty.experiments.fitting import thinned_rows
from thrifty.experiments.outcome import Outcome, Run
from thrifty.experiments.priced import Priced, SweepSettings
from thrifty.experiments.settings import read_settings

__all__ = ["NAME", "run"]

NAME = "miniboone"

NOTES = (
    (
        "This is the balanced subset of 5,000 events; the paper has 45,523 / 19,510 / 65,031 rows of the full, "
        "unbalanced set, so neither accuracies nor costs are comparable number by number."
    ),
)


def run(how: Run) -> Outcome:
    """Run the experiment, draw the picture and return the numbers."""
    settings = read_settings(SweepSettings, NAME, profile=how.profile, config=how.config)
    figure = Figure(
        NAME,
        "MiniBooNE, 5,000 events: test accuracy by budget",
        Priced.at_one_each(thinned_rows(load_miniboone(how.data), settings.rows, settings.seed)),
        settings.forest(),
        notes=NOTES,
    )
    return run_figure(figure, settings, how)
