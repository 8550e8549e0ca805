"""Forest, figure 3 (b): lodgepole pine against the other covers, 54 features at 1 each, f0 a random forest."""

from thrifty.datasets import load_forest
from thrifty.experiments.figure import Figure, run_figure
from thrifty.experiments.fitting import thinned_rows
from thrifty.experiments.outcome import Outcome, Run
from thrifty.experiments.priced import Priced, SweepSettings
from thrifty.experiments.settings import read_settings

__all__ = ["NAME", "run"]

NAME = "forest"


def run(how: Run) -> Outcome:
    """Run the experiment, draw the picture and return the numbers."""
    settings = read_settings(SweepSettings, NAME, profile=how.profile, config=how.config)
    figure = Figure(
        NAME,
        "Forest covertype: test accuracy by budget",
        Priced.at_one_each(thinned_rows(load_forest(how.data), settings.rows, settings.seed)),
        settings.forest(),
        notes=(
            "The split has the paper's sizes but is drawn by us; the classes are lodgepole pine and all others.",
        ),
    )
    return run_figure(figure, settings, how)
