"""Time the group lasso path against a plain proximal Newton method, and how time grows with the table.

    python benchmarks/group_lasso.py

The reference takes the same Newton steps in the simplest way: the Hessian of all columns at every step, no
working set, no reuse, block descent inside. Both start each gamma from the answer before and stop at the same
KKT residual. Times are processor seconds of one thread, which is how a sweep runs each fit and which other
processes disturb least. Trust the ratios; the seconds depend on the machine.
"""

import time
from functools import partial

import numpy as np
from numba import njit
from scipy import sparse
from scipy.special import expit
from threadpoolctl import threadpool_limits

from thrifty.learners.dynamod.group_lasso import LinearScores, group_lasso
from thrifty.learners.dynamod.objective import LogisticFit

TOL = 1e-6
N_GAMMAS = 20
REPEATS = 3


def make_heads(X, seed):
    """A gate and a cheap model whose truths are sparse, linear and noisy: (OPT4) as DynaMod-Lin meets it."""
    rng = np.random.default_rng(seed)
    n, p = X.shape
    gate = rng.normal(size=p) * (rng.uniform(size=p) < 0.3)
    cheap = rng.normal(size=p) * np.exp(-rng.permutation(p) / (p / 6))
    q = expit(X @ gate + 0.5 * rng.normal(size=n) - 1.0)
    y = (rng.uniform(size=n) < expit(X @ cheap)).astype(float)
    weight = np.full(n, 1.0 / n)
    return [LogisticFit(q, weight), LogisticFit(y, weight * (1.0 - q))]


def make_table(n, p, seed=0, neighbour=0.9):
    """Columns of which each correlates with the next."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = neighbour * X[:, j - 1] + np.sqrt(1.0 - neighbour**2) * X[:, j]
    return X


@njit
def descend(hessians, slope, b, penalties, tol):
    """Block descent with proximal steps on the quadratic model; the last column is the free intercept."""
    n_heads, p = b.shape
    start = b.copy()
    for _ in range(2000):
        largest = 0.0
        for j in range(p):
            bound = 0.0
            for k in range(n_heads):
                bound = max(bound, hessians[k, j, j])
            size = 0.0
            for k in range(n_heads):
                size += (bound * b[k, j] - slope[k, j]) ** 2
            size = np.sqrt(size)
            shrink = max(1.0 - penalties[j] / size, 0.0) / bound if size > 0.0 else 0.0
            for k in range(n_heads):
                move = shrink * (bound * b[k, j] - slope[k, j]) - b[k, j]
                if move != 0.0:
                    b[k, j] += move
                    slope[k] += move * hessians[k, j]
                    largest = max(largest, abs(move) * bound)
        if largest <= tol:
            break
    return b - start


def reference_path(X, fits, gammas):
    """Proximal Newton, plainly."""
    A = np.column_stack([X, np.ones(len(X))])
    B = np.zeros((len(fits), A.shape[1]))
    B[:, -1] = [fit.best_intercept() for fit in fits]
    answers = []
    for gamma in gammas:
        penalties = np.full(A.shape[1], gamma)
        penalties[-1] = 0.0
        for _ in range(100):
            scores = B @ A.T
            slope = np.array([fit.gradient(score) for fit, score in zip(fits, scores, strict=True)]) @ A
            answer = LinearScores(B[:, :-1].T.copy(), B[:, -1].copy())
            residual = plain_residual(B, slope, penalties)
            if residual <= TOL:
                break
            weights = [fit.hessian(score) for fit, score in zip(fits, scores, strict=True)]
            hessians = np.array([A.T @ (weight[:, None] * A) for weight in weights])
            move = descend(hessians, slope.copy(), B.copy(), penalties, 0.01 * residual)
            B = shorten(A, fits, B, move, slope, scores, penalties)
        answers.append(answer)
    return answers


def plain_residual(B, slope, penalties):
    size = np.linalg.norm(B, axis=0)
    inside = np.linalg.norm(slope + penalties * B / np.where(size > 0, size, 1.0), axis=0)
    return np.where(size > 0, inside, np.maximum(np.linalg.norm(slope, axis=0) - penalties, 0.0)).max()


def shorten(A, fits, B, move, slope, scores, penalties):
    """The longest step that lowers the objective enough."""

    def value(coef, score):
        return sum(fit.value(s) for fit, s in zip(fits, score, strict=True)) + penalties @ np.linalg.norm(
            coef, axis=0
        )

    path, here = move @ A.T, value(B, scores)
    promised = np.sum(slope * move) + penalties @ (
        np.linalg.norm(B + move, axis=0) - np.linalg.norm(B, axis=0)
    )
    for length in 0.5 ** np.arange(20):
        if value(B + length * move, scores + length * path) <= here + 1e-4 * length * promised:
            break
    return B + length * move


def problem(X, fits):
    groups, prices = np.arange(X.shape[1]), np.ones(X.shape[1])
    return X, fits, groups, prices


def gammas_for(X, fits):
    pulls = [fit.gradient(np.full(X.shape[0], fit.best_intercept())) for fit in fits]
    largest = np.linalg.norm(
        X.T @ np.column_stack(pulls), axis=1
    ).max()  # the least at which nothing is bought
    return largest * np.geomspace(1.0, 1e-3, N_GAMMAS)


def seconds(*functions):
    """Best of a few runs of each, taken in turns, and the last answers."""
    times, answers = [], []
    for _ in range(REPEATS):
        row = []
        for function in functions:
            start = time.process_time()
            answer = function()
            row.append(time.process_time() - start)
            answers.append(answer)
        times.append(row)
    return [*np.min(times, axis=0), *answers[-len(functions) :]]


def ours(X, fits, gammas):
    answers = [None]
    for gamma in gammas:
        answers.append(group_lasso(*problem(X, fits), gamma, start=answers[-1], tol=TOL).value)
    return answers[1:]


def worst_residual(X, fits, gammas, answers):
    worst = 0.0
    for gamma, answer in zip(gammas, answers, strict=True):
        scores = answer.scores(X).T
        pulls = np.array([fit.gradient(score) for fit, score in zip(fits, scores, strict=True)])
        B, slope = np.c_[answer.coef.T, answer.intercept], np.c_[(X.T @ pulls.T).T, pulls.sum(axis=1)]
        worst = max(worst, plain_residual(B, slope, np.r_[np.full(X.shape[1], gamma), 0.0]))
    return worst


def objective(X, fits, gamma, answer):
    fit = sum(fit.value(score) for fit, score in zip(fits, answer.scores(X).T, strict=True))
    return fit + gamma * np.linalg.norm(answer.coef, axis=1).sum()


def used(answer):
    return int((np.abs(answer.coef).sum(axis=1) > 0).sum())


def against_the_reference():
    print(
        f"\n{N_GAMMAS} gammas from the largest that buys down to 1/1000, 45,000 x 50, two KL heads, KKT <= {TOL:g}"
    )
    X = make_table(45_000, 50)
    fits = make_heads(X, 1)
    gammas = gammas_for(X, fits)
    for solver in (ours, reference_path):  # compile outside the clock
        solver(X[:400], [LogisticFit(f.target[:400], f.weight[:400]) for f in fits], gammas[:5])
    mine, theirs, found, plain = seconds(
        partial(ours, X, fits, gammas), partial(reference_path, X, fits, gammas)
    )
    print(f"{'':12}{'seconds':>9}{'KKT':>11}{'bought at the end':>19}")
    print(f"{'thrifty':12}{mine:9.2f}{worst_residual(X, fits, gammas, found):11.1e}{used(found[-1]):19d}")
    print(f"{'reference':12}{theirs:9.2f}{worst_residual(X, fits, gammas, plain):11.1e}{used(plain[-1]):19d}")
    gap = max(
        abs(objective(X, fits, g, a) - objective(X, fits, g, b))
        for g, a, b in zip(gammas, found, plain, strict=True)
    )
    print(
        f"thrifty takes {mine / theirs:.2f} of the reference's time; objectives differ by at most {gap:.0e}"
    )


def growth(title, shapes, density=None):
    print(f"\n{title}")
    header = f"{'rows':>8}{'columns':>9}{'seconds':>9}{'times':>7}"
    print(header if density is None else header + f"{'dense':>9}")
    before = None
    for n, p in shapes:
        if density is None:
            X = make_table(n, p)
        else:
            rng = np.random.default_rng(0)
            X = sparse.random_array(
                (n, p), density=density, rng=rng, data_sampler=rng.standard_normal, format="csr"
            )
        fits = make_heads(X, 1)
        gammas = gammas_for(X, fits)
        taken, answers = seconds(partial(ours, X, fits, gammas))
        assert worst_residual(X, fits, gammas, answers) <= TOL
        line = f"{n:8d}{p:9d}{taken:9.2f}" + (f"{taken / before:7.2f}" if before else f"{'':7}")
        print(
            line if density is None else line + f"{seconds(partial(ours, X.toarray(), fits, gammas))[0]:9.2f}"
        )
        before = taken


def main():
    against_the_reference()
    growth("Rows: time should double with them", [(n, 50) for n in (11_250, 22_500, 45_000, 90_000)])
    growth("Columns", [(20_000, p) for p in (25, 50, 100, 200)])
    growth(
        "CSR, 5 % filled; 'dense' is the same table as an array", [(45_000, 50), (45_000, 200)], density=0.05
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
