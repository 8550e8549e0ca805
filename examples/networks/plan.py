"""Plan which of several networks to ask about each image, and compare it with thresholds and single networks.

The second half of "A small network before a large one" (docs/networks.md): it reads the file that ``train.py`` wrote,
and needs neither torch nor a GPU::

    python examples/networks/plan.py networks.npz --batch-size 256

Plans are learned from what the networks answered to the training images, out of fold, and evaluated on the test images.
Exits of one network (``exits/0``, ``exits/1``, ...) are asked one after another for what the next part takes.
Thresholds are those that everyone writes first: ask one network, stop where its largest probability exceeds a
threshold, else ask the next one; every pair and every triple of networks, with the thresholds that are best out of
fold.
"""

import argparse
import itertools
import time
from pathlib import Path

import numpy as np

from thrifty import ModelRouter

SHARES = (0.10, 0.15, 0.25, 0.35, 0.50, 0.75, 1.0)
N_CELLS = 64


def prices_after(seconds):
    """Seconds of an exit after earlier exits of its network, by the names ``network/number``."""
    after = {}
    for name, own in seconds.items():
        network, _, number = name.rpartition("/")
        before = [f"{network}/{place}" for place in range(int(number))] if network else []
        if before:
            after[name] = {other: max(own - seconds[other], 0.0) for other in before if other in seconds}
    return after


class Thresholds:
    """Three networks, cheapest first, and two thresholds; thresholds that all or no rows exceed make pairs of them."""

    def __init__(self, places, sure, right, costs):
        self.places, self.costs = places, costs
        self.edges = [np.quantile(sure[:, one], np.arange(N_CELLS + 1) / N_CELLS) for one in places[:2]]
        for edges in self.edges:
            edges[0], edges[-1] = -np.inf, np.inf
        cells = [sure[:, one] for one in places[:2]]

        def below(weight):
            """Sums over the rows below each pair of thresholds."""
            counts = np.histogram2d(*cells, bins=self.edges, weights=weight)[0]
            return np.pad(counts, ((1, 0), (1, 0))).cumsum(0).cumsum(1) / len(right)

        first, second, third = (right[:, one].astype(float) for one in places)
        a, b, c, rows = below(first), below(second), below(third), below(np.ones(len(right)))
        self.quality = first.mean() - a[:, -1:] + b[:, -1:] - b + c
        self.cost = costs[0] + rows[:, -1:] * costs[1] + rows * costs[2]

    def best(self, budget):
        """Quality and thresholds of the best pair of thresholds within a budget."""
        quality = np.where(self.cost <= budget, self.quality, -1.0)
        place = np.unravel_index(quality.argmax(), quality.shape)
        return quality[place], [edges[one] for edges, one in zip(self.edges, place, strict=True)]

    def accuracy(self, thresholds, sure, right):
        """Accuracy on new rows."""
        first, second, third = self.places
        goes_on = sure[:, first] < thresholds[0]
        again = goes_on & (sure[:, second] < thresholds[1])
        return np.where(again, right[:, third], np.where(goes_on, right[:, second], right[:, first])).mean()


def thresholds_of_every_triple(names, seconds, after, sure, right):
    """Every three networks with thresholds between them."""
    for places in itertools.combinations(np.argsort(list(seconds.values()), kind="stable"), 3):
        costs = []
        for number, place in enumerate(places):
            discounts = after.get(names[place], {})
            costs.append(
                min([seconds[names[place]], *(discounts.get(names[one], np.inf) for one in places[:number])])
            )
        yield Thresholds(places, sure, right, costs)


def table(log, batch_size, max_asks):
    """Print the plan's accuracy beside that of thresholds and single networks."""
    names = [str(name) for name in log["names"]]
    sizes = log["batch_sizes"].tolist() if "batch_sizes" in log else [1, 32, 256]
    seconds = dict(zip(names, log["seconds"][:, sizes.index(batch_size)].tolist(), strict=True))
    logp, labels = log["logp"].astype(np.float64), log["y"]
    test = log["split"] == 2
    sure, right = logp.max(axis=2), logp.argmax(axis=2) == labels[:, None]
    out_of_fold, alone = right[~test].mean(axis=0), right[test].mean(axis=0)
    best = int(out_of_fold.argmax())
    unit, after = seconds[names[best]], prices_after(seconds)
    print(f"\nbatches of {batch_size}; {names[best]} takes {1e6 * unit:.2f} microseconds an image\n")
    print("| network | microseconds | share | right |\n|---|---|---|---|")
    for name, share in zip(names, alone, strict=True):
        print(f"| {name} | {1e6 * seconds[name]:.2f} | {seconds[name] / unit:.2f} | {share:.4f} |")

    began = time.monotonic()
    router = ModelRouter(seconds, after=after, max_asks=max_asks)
    router.fit(None, right[~test].astype(float), evidence=logp[~test])
    rivals = list(thresholds_of_every_triple(names, seconds, after, sure[~test], right[~test]))
    lines = {"thresholds": [], "router": [], "router's seconds": [], "best single network": []}
    for budget in unit * np.array(SHARES):
        affordable = [place for place, name in enumerate(names) if seconds[name] <= budget]
        if not affordable:
            for line in lines.values():
                line.append("")
            continue
        _, chosen = max(((rival.best(budget), rival) for rival in rivals), key=lambda pair: pair[0][0])
        replay = router.at(budget=budget).replay(None, right[test].astype(float), evidence=logp[test])
        single = max(affordable, key=lambda place: out_of_fold[place])
        lines["thresholds"].append(f"{chosen.accuracy(chosen.best(budget)[1], sure[test], right[test]):.4f}")
        lines["router"].append(f"{replay.quality.mean():.4f}")
        lines["router's seconds"].append(f"{replay.cost.mean() / unit:.2f}")
        lines["best single network"].append(f"{alone[single]:.4f}")
    print(f"\n| share of its seconds | {' | '.join(f'{share:.2f}' for share in SHARES)} |")
    print("|---|" + "---|" * len(SHARES))
    for name, line in lines.items():
        print(f"| {name} | {' | '.join(line)} |")
    print(f"\nplanned in {time.monotonic() - began:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="what train.py wrote")
    parser.add_argument(
        "--batch-size", type=int, nargs="+", default=[256], help="1, 32, 256 or several of them"
    )
    parser.add_argument("--max-asks", type=int, default=3, help="networks that may be asked about an image")
    options = parser.parse_args()
    with np.load(options.file) as file:
        log = {name: file[name] for name in file.files}
    if "device" in log:
        print(f"{log['device']}, torch {log['torch']}, {log['epochs'].max():.0f} epochs")
    for batch_size in options.batch_size:
        table(log, batch_size, options.max_asks)


if __name__ == "__main__":
    main()
