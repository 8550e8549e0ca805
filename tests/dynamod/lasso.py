"""The group lasso of (OPT4) in plain numpy: its objective, its KKT residual, and the price level that buys nothing."""

import numpy as np

from thrifty.learners.dynamod.group_lasso import group_lasso


def heads_of(fits, rows):
    """Each fit with its rows of ``rows``: one head, or one for each class."""
    first = 0
    for fit in fits:
        yield fit, rows[first] if fit.n_heads == 1 else rows[first : first + fit.n_heads]
        first += fit.n_heads


def norms_of_groups(coef, group_of, n_groups):
    return np.sqrt(np.bincount(group_of, (coef**2).sum(axis=1), minlength=n_groups))


def objective(X, fits, group_of, prices, gamma, found, l2=0.0):
    paid = gamma * np.asarray(prices) @ norms_of_groups(found.coef, group_of, len(prices))
    fit = sum(fit.value(score) for fit, score in heads_of(fits, found.scores(X).T))
    return fit + 0.5 * l2 * np.sum(found.coef**2) + paid


def slopes(X, fits, found, l2=0.0):
    """Gradients of the smooth terms in the coefficients and in the intercepts."""
    pulls = np.vstack(
        [np.atleast_2d(fit.gradient(score)) for fit, score in heads_of(fits, found.scores(X).T)]
    )
    return X.T @ pulls.T + l2 * found.coef, pulls.sum(axis=1)


def kkt_residual(X, fits, group_of, prices, gamma, found, l2=0.0):
    D, of_intercepts = slopes(X, fits, found, l2)
    worst = np.abs(of_intercepts).max()
    for group, price in enumerate(prices):
        block, gradient = found.coef[group_of == group], D[group_of == group]
        size = np.linalg.norm(block)
        pull = gamma * price * block / size if size else 0.0
        worst = max(worst, np.linalg.norm(gradient + pull) - (0.0 if size else gamma * price))
    return worst


def gamma_max(X, fits, group_of, prices, l2=0.0):
    """Smallest gamma at which nothing that has a price is bought; 0 if nothing has one."""
    prices, live = np.asarray(prices), [fit for fit in fits if not fit.needs_no_coefficients]
    null = group_lasso(X, live, group_of, prices, 1e9, l2=l2, tol=1e-10).value
    norms = norms_of_groups(slopes(X, live, null, l2)[0], group_of, len(prices))
    return np.max(norms[prices > 0] / prices[prices > 0], initial=0.0)
