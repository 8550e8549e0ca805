"""Naive Bayes: evidence of columns adds up, and the purchase with the least expected entropy comes next.

The baseline that methods with networks must beat. Columns are taken to be normal with one spread for all classes and
independent given the class, so that every set of purchases has its classifier without a fit of its own.
"""

import torch
from torch import Tensor

from reproduction.acquisition.masked import Buyer, Task

__all__ = ["fit_naive_bayes"]

PRIOR_ROWS = 5.0
"""Rows with the mean of all classes that every class counts beside its own."""

N_DRAWS = 5
"""Values of a purchase that are drawn for each class to find the entropy after it."""


def fit_naive_bayes(task: Task) -> Buyer:
    """Fit means and spreads on all rows, those for choosing among them: there is nothing to choose."""
    X, y = torch.cat([task.X, task.X_val]), torch.cat([task.y, task.y_val])
    is_class = torch.nn.functional.one_hot(y, task.n_classes).float()
    n_rows = is_class.sum(dim=0)[:, None]
    means = (is_class.T @ X + PRIOR_ROWS * X.mean(dim=0)) / (n_rows + PRIOR_ROWS)
    spread = (X - means[y]).pow(2).mean(dim=0).sqrt().clamp_min(1e-6)
    prior = (n_rows[:, 0] / len(y)).log()

    def predict(inputs: Tensor) -> Tensor:
        """Log-probabilities, up to what all classes share, of rows as ``Task.masked`` gives them."""
        values, shown = inputs.chunk(2, dim=1)
        return prior + (values / spread**2) @ means.T - 0.5 * shown @ ((means / spread) ** 2).T

    drawn = means.repeat_interleave(N_DRAWS, dim=0)
    drawn = drawn + spread * torch.randn(drawn.shape, generator=torch.Generator().manual_seed(0))
    evidence = [
        predict(torch.cat([drawn * one, one.expand_as(drawn)], dim=1)) - prior for one in task.columns
    ]

    def choose(X: Tensor, bought: Tensor) -> Tensor:
        scores = predict(task.masked(X, bought))
        weight = scores.softmax(dim=1).repeat_interleave(N_DRAWS, dim=1) / N_DRAWS
        after = [
            (weight * torch.distributions.Categorical(logits=scores[:, None] + one).entropy()).sum(dim=1)
            for one in evidence
        ]
        return (torch.stack(after, dim=1) + 1e6 * bought).argmin(dim=1)

    return Buyer(predict, choose)
