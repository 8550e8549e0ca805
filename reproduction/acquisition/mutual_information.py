"""DIME: a network that estimates the mutual information of the class and each purchase, given what is held.

Gadgil, Covert and Lee (2024), Estimating Conditional Mutual Information for Dynamic Feature Selection. The estimate is
a share of the entropy of the classifier's answer and learns from by how much the loss of a row falls with a purchase.
"""

from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from reproduction.acquisition.masked import Buyer, Task, hidden_layers, minimise, path_loss

__all__ = ["fit_mutual_information"]


def fit_mutual_information(
    task: Task, predictor: Any, n_steps: int, max_epochs: int, explored: tuple[float, ...]
) -> Buyer:
    """Fit DIME from a pretrained classifier, with whose hidden layers the estimates share theirs.

    ``explored`` are shares of random purchases while it learns, one training after the other.
    """
    predictor, value = deepcopy(predictor), hidden_layers(task, len(task.columns))
    value[0], value[3] = predictor[0], predictor[3]
    both = nn.ModuleList([predictor, value])

    def information(inputs: Tensor, answers: Tensor) -> Tensor:
        entropy = torch.distributions.Categorical(logits=answers.detach()).entropy()
        return value(inputs).sigmoid() * entropy[:, None]

    def choose(X: Tensor, bought: Tensor) -> Tensor:
        inputs = task.masked(X, bought)
        return (information(inputs, predictor(inputs)) - 1e6 * bought).argmax(dim=1)

    buyer = Buyer(predictor, choose)

    def loss(X: Tensor, y: Tensor, share: float) -> Tensor:
        bought = torch.zeros(len(X), len(task.columns))
        inputs = task.masked(X, bought)
        answers = predictor(inputs)
        before = functional.cross_entropy(answers, y, reduction="none")
        total = before.mean()
        for _ in range(n_steps):
            estimates = information(inputs, answers)
            at_random = torch.randint(len(task.columns), (len(X),))
            chosen = torch.where(torch.rand(len(X)) < share, at_random, estimates.argmax(dim=1))
            bought = torch.maximum(bought, functional.one_hot(chosen, len(task.columns)).float())
            inputs = task.masked(X, bought)
            answers = predictor(inputs)
            after = functional.cross_entropy(answers, y, reduction="none")
            fallen = (before - after).detach()
            estimated = estimates.gather(1, chosen[:, None])[:, 0]
            total = total + after.mean() + functional.mse_loss(estimated, fallen)
            before = after
        return total / (n_steps + 1)

    losses = [partial(loss, share=share) for share in explored]
    minimise(both, task, losses, partial(path_loss, task, buyer, n_steps), max_epochs)
    return buyer
