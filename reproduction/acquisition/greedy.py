"""GDFS: a network that names the purchase after which the classifier's loss is least.

Covert, Qiu, Lu, Kim, White and Lee (2023), Learning to Maximize Mutual Information for Dynamic Feature Selection. The
choice is relaxed (Gumbel-softmax) at temperatures that fall from 1 to 0.1; classifier and policy learn together.
"""

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from reproduction.acquisition.masked import Buyer, Task, hidden_layers, minimise, path_loss

__all__ = ["fit_greedy"]

SHARPNESS = 5.0  # of the policy's logits: 1 / gamma in the authors' program


def fit_greedy(task: Task, predictor: Any, n_steps: int, max_epochs: int) -> Buyer:
    """Fit GDFS from a pretrained classifier; the weights whose purchases serve validation rows best are kept."""
    predictor, policy = deepcopy(predictor), hidden_layers(task, len(task.columns))
    both = nn.ModuleList([predictor, policy])
    buyer = Buyer(predictor, lambda X, bought: (policy(task.masked(X, bought)) - 1e6 * bought).argmax(dim=1))

    def relaxed_loss(X: Tensor, y: Tensor, temperature: float) -> Tensor:
        """Mean loss one relaxed purchase after each of the first sets of purchases that the policy draws."""
        bought, total = torch.zeros(len(X), len(task.columns)), torch.zeros(())
        for _ in range(n_steps):
            logits = SHARPNESS * policy(task.masked(X, bought))
            soft = functional.gumbel_softmax(logits, tau=temperature)
            answers = predictor(task.masked(X, torch.maximum(bought, soft)))
            total = total + functional.cross_entropy(answers, y)
            # No row makes a purchase twice.
            bought = bought + functional.gumbel_softmax(
                (logits - 1e6 * bought).detach(), tau=temperature, hard=True
            )
        return total / n_steps

    losses = [partial(relaxed_loss, temperature=one) for one in np.geomspace(1.0, 0.1, 5).tolist()]
    minimise(both, task, losses, partial(path_loss, task, buyer, n_steps), max_epochs)
    return buyer
