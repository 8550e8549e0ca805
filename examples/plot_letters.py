"""
Budgets: how little tells twenty-six letters apart?
===================================================

Frey and Slate (1991, Machine Learning 6) described printed letters by sixteen numbers: where the ink lies, how it is
spread, how many edges there are. Here letters are printed in six fonts and two sizes, tilted, with much ink or little,
and measured in that way. Every number costs 1. Which letters need more of them than others?
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties, findfont
from PIL import Image, ImageDraw, ImageFont
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty import BudgetedClassifier, StageOptions

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FONTS = [
    ImageFont.truetype(findfont(FontProperties(family=family, weight=weight)), size)
    for family in ("DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono")
    for weight in ("normal", "bold")
    for size in (23, 25)
]


def printed(letter, rng):
    """A picture of a letter, true where there is ink."""
    page = Image.new("L", (40, 40))
    ImageDraw.Draw(page).text((20, 20), letter, 255, FONTS[rng.integers(len(FONTS))], anchor="mm")
    turned = page.rotate(rng.normal(0, 4), resample=Image.Resampling.BILINEAR)
    return np.asarray(turned) > rng.uniform(60, 160)


def measured(ink):
    """Sixteen numbers of a picture."""
    rows, columns = np.nonzero(ink)
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    x, y = (columns - columns.mean()) / 20, (rows - rows.mean()) / 20
    across, down = np.diff(ink.astype(int), axis=1) > 0, np.diff(ink.astype(int), axis=0) > 0
    return [
        columns.min() + width / 2, rows.min() + height / 2, width, height, len(rows),
        columns.mean() - columns.min(), rows.mean() - rows.min(), (x**2).mean(), (y**2).mean(), (x * y).mean(),
        (x**2 * y).mean(), (x * y**2).mean(), across.sum(), (across * np.arange(40)[:, None]).sum() / across.sum(),
        down.sum(), (down * np.arange(40)).sum() / down.sum(),
    ]  # fmt: skip


rng = np.random.default_rng(0)
y = rng.choice(list(LETTERS), 2300)
pictures = np.array([printed(letter, rng) for letter in y])
X = np.array([measured(ink) for ink in pictures])
X, X_test, y, y_test, _, shown = train_test_split(X, y, pictures, test_size=1000, random_state=0, stratify=y)

# %%
# The full model reads all sixteen. Operating points are evaluated by copies of the stages that learned from half of the
# rows each; the stages that serve learned from all rows, are surer, and spend less than the budget.

full = make_pipeline(StandardScaler(), SVC(C=10))
clf = BudgetedClassifier(full, stages=StageOptions(max_stages=7, sizes=[(20, 4)]), cv=2, random_state=0).fit(
    X, y
)
print(f"full model: {full.fit(X, y).score(X_test, y_test):.3f} at 16")
for budget in (4, 6, 8, 10):
    there = clf.at(budget=budget)
    print(f"budget {budget:2}: {there.score(X_test, y_test):.3f} at {there.cost(X_test).mean():.2f}")

# %%
# Mean cost of each letter at a budget of 8, with one printed example.

there = clf.at(budget=8)
cost = there.cost(X_test)
mean_cost = np.array([cost[y_test == letter].mean() for letter in LETTERS])
order = np.argsort(mean_cost)
fig, ax = plt.subplots(figsize=(6.4, 3.8))
ax.bar(range(26), mean_cost[order], color="tab:blue")
ax.axhline(16, color="black", linestyle="--", label="full model")
ax.set_xticks(range(26), [LETTERS[place] for place in order], fontsize=9)
ax.set(ylabel="mean cost", ylim=(0, 20))
ax.legend(loc="upper left")
for place, letter in enumerate(order):
    example = shown[np.flatnonzero(y_test == LETTERS[letter])[0]]
    inset = ax.inset_axes([place - 0.45, mean_cost[letter] + 0.2, 0.9, 2.6], transform=ax.transData)
    inset.imshow(example[6:34, 6:34], cmap="Greys", aspect="equal")
    inset.axis("off")
fig.tight_layout()
