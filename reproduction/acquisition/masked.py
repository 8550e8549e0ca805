"""Networks that see what was bought: masks, training until validation rows gain no more, and sequences of purchases."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from reproduction.datasets import Split
from thrifty.arrays import Ints

__all__ = ["Buyer", "Task", "hidden_layers", "minimise", "path_loss", "pretrain", "probabilities_by_step"]

BATCHES = int(__import__("os").environ.get("BATCHES", "12"))

as_tensor = partial(torch.as_tensor, dtype=torch.float32)


@dataclass(frozen=True)
class Task:
    """Rows for fitting and for choosing; ``columns[i, j]`` is 1 where purchase i reveals column j."""

    X: Tensor
    y: Tensor
    X_val: Tensor
    y_val: Tensor
    columns: Tensor
    n_classes: int

    @classmethod
    def of(cls, split: Split, groups: Ints) -> "Task":
        """Make tensors of a split; ``groups`` holds the purchase of each column."""
        X, X_val = as_tensor(split.X_train), as_tensor(split.X_val)
        y, y_val = torch.as_tensor(split.y_train), torch.as_tensor(split.y_val)
        columns = as_tensor(np.eye(int(groups.max()) + 1)[:, groups])
        return cls(X, y, X_val, y_val, columns, int(split.y_train.max()) + 1)

    def masked(self, X: Tensor, bought: Tensor) -> Tensor:
        """Rows with zeros in hidden columns, beside the mask itself; ``bought`` may hold fractions."""
        shown = bought @ self.columns
        return torch.cat([X * shown, shown], dim=1)


@dataclass(frozen=True)
class Buyer:
    """A network that predicts from masked rows, and a policy that chooses the next purchase.

    ``choose(X, bought)`` gives the number of a purchase for each row, or the number of purchases where it stops.
    """

    predictor: Any
    choose: Callable[[Tensor, Tensor], Tensor]


def hidden_layers(task: Task, n_outputs: int, *, width: int = 128, dropout: float = 0.3) -> Any:
    """Two hidden layers on a masked row, the size that authors of GDFS and DIME give tables."""
    layers: list[Any] = []
    for n_inputs in (2 * task.columns.shape[1], width):
        layers += [nn.Linear(n_inputs, width), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(width, n_outputs))


def minimise(
    networks: Any,
    task: Task,
    losses: Sequence[Callable[[Tensor, Tensor], Tensor]],
    judge: Callable[[], Tensor],
    max_epochs: int,
    patience: int = 3,
) -> None:
    """Minimise losses one after the other with Adam, and keep the weights that validation rows judge best.

    The rate of each, 1e-3 at first, falls to a fifth after ``patience`` epochs without a better ``judge()``, and the
    next loss has its turn soon after, as in the programs of both authors. Their epochs are passes over the table, an
    epoch here is ``BATCHES`` batches of their 128 rows: a table of 600 rows is not given up after a score of steps.
    """
    best, weights = np.inf, deepcopy(networks.state_dict())
    for loss in losses:
        networks.load_state_dict(weights)
        optimizer = torch.optim.Adam(networks.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.2, patience=patience)
        n_bad = 0
        for _ in range(max_epochs):
            networks.train()
            for rows in torch.randint(len(task.y), (BATCHES, 128)):
                optimizer.zero_grad()
                loss(task.X[rows], task.y[rows]).backward()
                optimizer.step()
            networks.eval()
            with torch.no_grad():
                found = float(judge())
            schedule.step(found)
            n_bad = 0 if found < best else n_bad + 1
            if n_bad == 0:
                best, weights = found, deepcopy(networks.state_dict())
            if n_bad > patience + 1:
                break
    networks.load_state_dict(weights)


def pretrain(task: Task, max_epochs: int) -> Any:
    """Train a classifier on rows of which a random number of random purchases is hidden."""
    predictor = hidden_layers(task, task.n_classes)

    def random_sets(n_rows: int) -> Tensor:
        return (torch.rand(n_rows, len(task.columns)) > torch.rand(n_rows, 1)).float()

    def loss(X: Tensor, y: Tensor, bought: Tensor | None = None) -> Tensor:
        shown = task.masked(X, random_sets(len(X)) if bought is None else bought)
        return functional.cross_entropy(predictor(shown), y)

    # The same sets for every epoch, four for a row: what chance hides must not end a training.
    X, y = task.X_val.repeat(4, 1), task.y_val.repeat(4)
    minimise(predictor, task, [loss], partial(loss, X, y, random_sets(len(X))), max_epochs)
    return predictor


def probabilities_by_step(task: Task, buyer: Buyer, X: Tensor, n_steps: int) -> Tensor:
    """Probabilities of the classes after 0, 1, ... purchases, of shape (n_steps + 1, n_rows, n_classes)."""
    n_purchases = len(task.columns)
    bought = torch.zeros(len(X), n_purchases)
    goes_on = torch.ones(len(X), 1)
    with torch.no_grad():
        found = [buyer.predictor(task.masked(X, bought)).softmax(dim=1)]
        for _ in range(n_steps):
            chosen = functional.one_hot(buyer.choose(X, bought), n_purchases + 1).float()
            goes_on = goes_on * (1 - chosen[:, -1:])
            bought = torch.maximum(bought, goes_on * chosen[:, :-1])
            found.append(buyer.predictor(task.masked(X, bought)).softmax(dim=1))
    return torch.stack(found)


def path_loss(task: Task, buyer: Buyer, n_steps: int) -> Tensor:
    """Mean cross-entropy of validation rows after 0 to ``n_steps`` purchases."""
    found = probabilities_by_step(task, buyer, task.X_val, n_steps)
    return functional.nll_loss(found.clamp_min(1e-12).log().flatten(0, 1), task.y_val.repeat(n_steps + 1))
