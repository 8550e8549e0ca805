"""The paper: DynaMod estimators, the alternation they share, and the protocol for families F and G of your own.

(OPT2) leaves open what the cheap model f1 and the gate g are, and how far apart a share q and a gate g are:

    min_{f1 in F, g in G, q}  mean[(1 - q) l(f1) + q l(f0) + D(q, g)] + Omega(f1, g)   subject to   mean(q) <= p_full

``alternate`` solves a ``Problem`` for anything that fulfils ``Pair`` (a family: ``fit`` to shares, ``scores``,
``penalty``), with one of the paper's distances or with any ``Distance`` and the q-step that belongs to it.
``check_pair`` says whether a family keeps to the protocol. A subclass of ``GatedClassifier``
(``thrifty.learners.dynamod.gated``) whose ``_learn`` runs the alternation and returns a ``Stage``, or a ``Learned`` of
a stage that was cross-fitted, then predicts, buys and moves its operating point as every other estimator does:
``examples/plot_own_family.py`` does all of it for splines.
"""

from thrifty.engine.walk.stage import Stage, Visit
from thrifty.learners.dynamod.alternating import (
    Alternation,
    CrossFittedPair,
    Fold,
    Pair,
    Problem,
    QStep,
    Round,
    alternate,
    check_pair,
)
from thrifty.learners.dynamod.boosted import BoostedOptions
from thrifty.learners.dynamod.gated import PairOptions
from thrifty.learners.dynamod.leaf import LeafOptions
from thrifty.learners.dynamod.linear import LinearOptions
from thrifty.learners.dynamod.objective import Distance, Solution, kl_divergence, squared_distance
from thrifty.learners.dynamod.qstep import q_step_kl, q_step_squared

__all__ = [
    "Alternation",
    "BoostedOptions",
    "CrossFittedPair",
    "Distance",
    "Fold",
    "LeafOptions",
    "LinearOptions",
    "Pair",
    "PairOptions",
    "Problem",
    "QStep",
    "Round",
    "Solution",
    "Stage",
    "Visit",
    "alternate",
    "check_pair",
    "kl_divergence",
    "q_step_kl",
    "q_step_squared",
    "squared_distance",
]
