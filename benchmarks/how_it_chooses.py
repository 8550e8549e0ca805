"""Draw the pictures of docs/how_it_chooses.md, and print the numbers that it quotes.

    python benchmarks/how_it_chooses.py          # writes docs/img/choices_*.png; half a minute

One fit on the handwritten digits of scikit-learn (is it five or more?), 64 pixels at price 1. Whatever is drawn is what
the fit looked at, on rows that the models at hand have not seen.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier

from thrifty import BudgetedClassifier
from thrifty.learners.cascade import plan as planning
from thrifty.learners.cascade.evaluation import calibrate

mpl.use("Agg")
import matplotlib.pyplot as plt

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "img"
BUDGET = 6.0
INK, STRONG, WEAK = "#333333", "#1f6fb4", "#b9c6d3"


def fit():
    """The fit, the rows that it has not seen, and what it saw of every order."""
    digits = load_digits()
    rows = np.random.default_rng(0).permutation(len(digits.target))
    X, y = digits.data[rows], (digits.target[rows] >= 5).astype(int)
    seen, mean_score = [], planning._mean_score

    def spy(problem, plan, scores, budgets):
        _, calibrated = calibrate(problem, scores)
        right = [
            problem.task.quality_of_scores(problem.y, calibrated[:, stage]).mean()
            for stage in range(scores.shape[1])
        ]
        score = mean_score(problem, plan, scores, budgets)
        seen.append((plan.name, plan.order, problem.costs(plan.sets)[:-1], np.array(right), score))
        return score

    planning._mean_score = spy
    full = ExtraTreesClassifier(100, random_state=0)
    clf = BudgetedClassifier(full, budget=BUDGET, random_state=0).fit(X[:1200], y[:1200])
    planning._mean_score = mean_score
    return clf, X[1200:], y[1200:], seen


def picture(name, width=6.4, height=3.4):
    """A figure with one pair of axes, and how to save it."""
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return axes, lambda: (figure.savefig(IMAGES / f"choices_{name}.png", dpi=100), plt.close(figure))


def orders(seen):
    """Held-out accuracy of each candidate order, were all rows to stop at the same place."""
    axes, save = picture("orders")
    best = max(seen, key=lambda one: one[-1])[0]
    for (name, order, cost, right, worth), line in zip(seen, ("-", "--", ":", "-."), strict=False):
        chosen = name == best
        label = f"by {name}: worth {worth:.4f}" + (", taken" if chosen else "")
        axes.plot(cost, right, line, color=STRONG if chosen else INK, lw=2.2 if chosen else 1.2, label=label)
        print(f"order by {name}: worth {worth:.4f}, first purchases {order[:8].tolist()}")
    axes.set(xlabel="purchases made (log scale)", ylabel="accuracy, held out")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False)
    save()


def stages(evidence, cost):
    """How sure the stages are: the distribution of the margin at three of them."""
    axes, save = picture("stages")
    places = [0, len(cost) // 2, len(cost) - 1]
    for place, colour in zip(places, (WEAK, "#6fa0c8", STRONG), strict=True):
        margin = -evidence.gate[:, place]
        right = evidence.quality[:, place].mean()
        label = f"cost {cost[place]:g}: accuracy {right:.3f}"
        axes.hist(
            np.clip(margin, 0, 8), np.linspace(0, 8, 41), histtype="step", lw=2, color=colour, label=label
        )
        print(
            f"stage {place}, cost {cost[place]:g}: accuracy {right:.3f}, median margin {np.median(margin):.2f}"
        )
    axes.set(xlabel="margin: distance of the log-odds from a tie (8 and more at 8)", ylabel="rows")
    axes.legend(frameon=False)
    save()


def gates(evidence, policy, cost):
    """How often a stage errs, by its doubt, and the threshold in force there."""
    place = int(np.searchsorted(cost, BUDGET * 0.75))
    doubt, wrong = evidence.gate[:, place], ~evidence.quality[:, place]
    groups = np.array_split(np.argsort(doubt), 12)
    axes, save = picture("gates")
    axes.plot(
        [doubt[one].mean() for one in groups], [wrong[one].mean() for one in groups], "o-", color=STRONG
    )
    threshold = policy.thresholds[policy.lower, place]
    axes.axvline(threshold, color=INK, lw=1.2)
    goes = (doubt > threshold).mean()
    for words, side in (("rows stop  ", "right"), ("  rows go on", "left")):
        axes.annotate(words, (threshold, 0.9 * axes.get_ylim()[1]), ha=side)
    axes.set(xlabel=f"doubt after {cost[place]:g} purchases (minus the margin)", ylabel="share that errs")
    save()
    print(f"gate at cost {cost[place]:g}: threshold {threshold:.3f}, above it {goes:.1%} of the rows;")
    print(
        f"  wrong above it {wrong[doubt > threshold].mean():.3f}, below {wrong[doubt <= threshold].mean():.3f}"
    )


def induction(evidence, policy, cost):
    """Where rows stop, at every operating point."""
    axes, save = picture("induction")
    n_places = evidence.n_stages + 1
    shares = np.array(
        [np.bincount(evidence.at_point(one)[0], minlength=n_places) for one in policy.thresholds]
    ) / len(evidence.gate)
    colours = plt.get_cmap("Blues")(np.linspace(0.15, 0.95, n_places))
    axes.stackplot(policy.cost, shares.T, colors=colours, edgecolor="white", lw=0.4)
    axes.axvline(BUDGET, color=INK, lw=1.2)
    axes.set(xlabel="mean cost of the operating point", ylabel="share of rows that stop", ylim=(0, 1))
    axes.set_title("light: after few purchases; darkest: the full model", fontsize=9, color=INK)
    save()
    there = np.interp(BUDGET, policy.cost, np.arange(len(policy.cost)))
    print(
        f"{len(policy)} operating points, cost {policy.cost[0]:.2f} to {policy.cost[-1]:.2f}; budget at {there:.2f}"
    )
    at = shares[int(there)]
    places = [*(f"at {one:g}" for one in cost), "full model"]
    stop = ", ".join(f"{place} {one:.2f}" for place, one in zip(places, at, strict=True) if one > 0.01)
    print(f"  shares that stop: {stop}")


def mix(clf, X, y):
    """Operating points, the one in force between two, and what it does with rows that nothing was chosen on."""
    policy, in_force = clf._learned.policy, clf.chain_.policy
    lower = int(np.searchsorted(policy.cost, BUDGET)) - 1
    axes, save = picture("mix")
    axes.plot(
        policy.cost,
        policy.score,
        "o-",
        color=WEAK,
        mec=STRONG,
        mfc="white",
        label="operating points, held out",
    )
    ends = [lower, lower + 1]
    axes.plot(policy.cost[ends], policy.score[ends], "o-", color=STRONG, lw=2.2, label="the two around it")
    axes.plot(in_force.expected_cost, in_force.expected_score, "D", color=INK, label="expected")
    spent, right = clf.cost(X).mean(), clf.score(X, y)
    axes.plot(spent, right, "x", color="#c0392b", ms=9, mew=2.2, label=f"{len(y)} new rows")
    axes.set(xlabel="mean cost", ylabel="accuracy", xlim=(0, min(3.5 * BUDGET, policy.cost[-1] * 1.05)))
    axes.legend(frameon=False, loc="lower right")
    save()
    low, high = clf.expected_cost_interval_
    mixed = clf.evidence_.share_by_lot(policy.within(BUDGET))
    print(
        f"budget {BUDGET:g}: between points {lower} and {lower + 1}; by lot {clf.share_by_lot_:.3f}, mixed {mixed:.3f};"
    )
    print(
        f"  expected cost {in_force.expected_cost:.2f} ({low:.2f} to {high:.2f}), "
        f"accuracy {in_force.expected_score:.4f}"
    )
    print(f"  {len(y)} new rows: cost {spent:.2f}, accuracy {right:.4f}; full model's cost 64")


def main():
    """Fit once, draw everything."""
    clf, X, y, seen = fit()
    evidence, policy, in_force = clf.evidence_, clf._learned.policy, clf.chain_.policy
    cost = np.asarray(evidence.cost)[:-1]
    orders(seen)
    stages(evidence, cost)
    gates(evidence, in_force, cost)
    induction(evidence, policy, cost)
    mix(clf, X, y)


if __name__ == "__main__":
    main()
