"""Computation of a device as plain arrays: stages, gates, thresholds and prices of one chain.

A line has one order of purchases, so that a row holds the first columns of this order. Every kind of stage becomes one
form,

    sums    = start + values of the leaves that the row reaches in the trees        start: carried scores, or constants
    scores  = slope * sums + shift
    gate    = first sum, or start of the gate + values of its own trees, less ``margin`` times the uncertainty

and a row goes on iff its gate exceeds the threshold in force. In front of the last stage of a tree of purchases, the
sums are those of a mixture, and a row that goes on chooses its next node.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.tasks.classes import BinaryTask, MulticlassTask
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.tasks.regression import RegressionTask
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.mixture import Mixture, MixtureStage, TurnByGain
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import BoostedStage, CascadeStage, ConfidentStage, LeafStage, Stage, nodes_of
from thrifty.errors import InvalidInputError
from thrifty.rows import mix


@dataclass(frozen=True, eq=False)
class DeviceStage:
    """One stage.

    Attributes
    ----------
    n_held : int
        Number of columns, in the order of purchase, that a row holds.
    trees : TreeEnsemble
        Over all columns in the order of purchase.
    carries : bool
        Whether sums start from the scores that the row carries instead of ``start``.
    start : ndarray of shape (n_outputs of the trees,)
        Constants that sums start from.
    slope : float
        Factor of the calibration.
    shift : ndarray of shape (n_scores,)
        Intercepts of the calibration.
    gate_first : bool
        Whether the first sum is the gate, and the others are scores.
    gate : TreeEnsemble, optional
        Over all columns and, behind them, the scores.
    gate_start : float
        Start of the sum of the gate's trees.
    margin : float
        Weight of the uncertainty; minus one where it is the gate.
    """

    n_held: int
    trees: TreeEnsemble
    carries: bool
    start: Floats
    slope: float
    shift: Floats
    gate_first: bool = False
    gate: TreeEnsemble | None = None
    gate_start: float = 0.0
    margin: float = 0.0


@dataclass(frozen=True, eq=False)
class DeviceNode:
    """A set of purchases, and the choice of the next one.

    Attributes
    ----------
    held : ndarray
        Places in the order of purchase of the columns that are held, in the order of their factors.
    turn : TurnByGain, optional
        Choice of the node of the next stage, which tells places; its only node without one.
    """

    held: Ints
    turn: TurnByGain | None


@dataclass(frozen=True, eq=False)
class DeviceTree:
    """A tree of purchases.

    Attributes
    ----------
    mixture : Mixture
        Over places in the order of purchase, and not columns.
    levels : tuple of tuple of DeviceNode
        Nodes of every stage; the last stage has one.
    n_mixed : int
        Stages that the mixture scores: all, or all but the last, which trees score.
    """

    mixture: Mixture
    levels: tuple[tuple[DeviceNode, ...], ...]
    n_mixed: int

    @property
    def nodes(self) -> list[DeviceNode]:
        """Nodes of all stages, one stage after the other."""
        return [node for level in self.levels for node in level]


@dataclass(frozen=True, eq=False)
class DeviceModel:
    """A chain as a device walks it.

    Attributes
    ----------
    order : ndarray of shape (n_purchases,)
        Columns in the order of purchase.
    names : tuple of str
        Names of the columns of the table, in the table's order.
    levels : dict of int to tuple of str
        Levels of the columns of categories, by column.
    classes : tuple of str
        Labels; empty for numbers.
    centre, spread : float
        A predicted number is ``score * spread + centre``.
    base : ndarray of shape (n_scores,)
        Scores that a row carries into the first stage.
    stages : tuple of DeviceStage
        The cheapest first.
    points : tuple of Policy
        Operating points; each is a mix of at most two rows of thresholds.
    cost : ndarray of shape (n_purchases + 1,)
        Price of the first so many purchases; of a tree, zero and the price of each node.
    tree : DeviceTree, optional
        Nodes of a tree of purchases.
    resources : tuple of str
        Several resources that purchases cost; ``cost`` is then their sum at the exchange rates of the fit.
    costs : ndarray of shape (n_purchases + 1, n_resources), optional
        The same in each of them.
    """

    order: Ints
    names: tuple[str, ...]
    levels: dict[int, tuple[str, ...]]
    classes: tuple[str, ...]
    centre: float
    spread: float
    base: Floats
    stages: tuple[DeviceStage, ...]
    points: tuple[Policy, ...]
    cost: Floats
    tree: DeviceTree | None = None
    resources: tuple[str, ...] = ()
    costs: Floats | None = None

    @property
    def n_scores(self) -> int:
        """Number of scores of a row."""
        return len(self.base)

    @property
    def ensembles(self) -> list[TreeEnsemble]:
        """Trees of all stages and gates, in the order of the stages."""
        return [trees for stage in self.stages for trees in (stage.trees, stage.gate) if trees is not None]


def device_model(chain: Chain, points: tuple[Policy, ...]) -> DeviceModel:
    """Turn a chain into what a device computes; what a device cannot compute is refused."""
    task: Any = chain.task
    if chain.behind:
        raise InvalidInputError(
            "a chain in front of a chain cannot be exported: a device asks one server. Export the first chain in front "
            "of its full model."
        )
    if not isinstance(task, BinaryTask | MulticlassTask | RegressionTask) or isinstance(task, RankingTask):
        raise InvalidInputError(
            "only systems that predict classes or numbers can be exported; this one ranks. Serve it with "
            "`thrifty serve`."
        )
    mistakes = getattr(task, "mistakes", None)
    if mistakes is not None and mistakes.uncertainty(task.outputs(np.zeros((1, task.n_scores)))) is not None:
        raise InvalidInputError(
            f"a gate by {mistakes.name} needs probabilities, which a device does not compute. Fit with the default "
            f"loss to export."
        )
    if chain.walker.has_forks and not isinstance(nodes_of(chain.stages[0])[0], MixtureStage):
        raise InvalidInputError(
            "a system whose rows part into branches, as fits of version 0.3 may, cannot be exported. Fit again."
        )
    resources = chain.price_list.resources
    if resources is not None and resources.delays:
        raise InvalidInputError(
            f"delays ({', '.join(resources.delays)}) cannot be exported: a device asks for one column at a time. Fit "
            f"without delays=."
        )
    if any(point.more is not None for point in points):
        raise InvalidInputError(
            "a device mixes at most two operating points, and this system mixes three or more. Export "
            "system.at(budget=..., mix=False), or a system with a budget of one resource."
        )
    if chain.price_list.by_row is not None:
        raise InvalidInputError(
            "prices that differ by row cannot be exported: a device knows one price list. Fit with prices that are the "
            "same for every row."
        )
    order = chain.walker.held_at(len(chain.stages) - 1)
    n_features = chain.price_list.n_features
    position = np.full(n_features, -1)
    position[order] = np.arange(len(order))
    base = np.zeros(task.n_scores) if chain.base is None else chain.base
    held = [len(chain.walker.held_at(place)) for place in range(len(chain.stages))]
    stages = [
        _stage(stage, n_held, position, len(order), task.n_scores)
        for stage, n_held in zip(chain.stages, held, strict=True)
    ]
    tree = _tree(chain.stages, position)
    if tree is not None:  # rows leave the mixture with the scores that they carried in
        stages[-1] = replace(stages[-1], carries=False, start=base)

    def cost_of(chain: Chain) -> Floats:
        """Price of the purchases at each node of a tree, or of the first so many."""
        if tree is not None:
            return np.r_[0.0, chain.cost_by_place[: len(tree.nodes)]]
        bought = np.zeros((len(order) + 1, n_features), dtype=bool)
        bought[:, order] = np.tri(len(order) + 1, len(order), -1, dtype=bool)
        return chain.price_list.cost_of_rows(bought, np.zeros(len(bought), dtype=bool))

    return DeviceModel(
        order=order,
        names=chain.schema.names,
        levels={} if chain.levels is None else dict(chain.levels.of_column),
        classes=tuple(str(label) for label in task.classes),
        centre=task.centre if isinstance(task, RegressionTask) else 0.0,
        spread=task.spread if isinstance(task, RegressionTask) else 1.0,
        base=base,
        stages=tuple(stages),
        points=points,
        cost=cost_of(chain),
        tree=tree,
        resources=() if resources is None else resources.names,
        costs=None if resources is None else np.column_stack([cost_of(one) for one in chain.by_resource]),
    )


def _tree(stages: Sequence[Stage], position: Ints) -> DeviceTree | None:
    """Nodes of a tree of purchases; None of a line."""
    levels = [nodes_of(stage) for stage in stages]
    mixtures = [level[0].mixture for level in levels if isinstance(level[0], MixtureStage)]
    if not mixtures:
        return None

    def placed(node: Any) -> DeviceNode:
        turn = node.turn
        if turn is not None:
            turn = replace(turn, tells=np.where(turn.tells < 0, -1, position[turn.tells]))
        return DeviceNode(position[node.columns], turn)

    nodes = tuple(tuple(placed(node) for node in level) for level in levels)
    return DeviceTree(replace(mixtures[0], columns=position[mixtures[0].columns]), nodes, len(mixtures))


def _stage(stage: Stage, n_held: int, position: Ints, n_order: int, n_scores: int) -> DeviceStage:
    """One stage of a chain in the form of a device."""

    def placed(trees: TreeEnsemble, reads_scores: bool = False) -> TreeEnsemble:
        """Trees over the order of purchases instead of the columns of the stage."""
        place = position[stage.columns]
        if reads_scores:
            place = np.r_[place, n_order + np.arange(n_scores)]
        n_features = n_order + n_scores * reads_scores
        return replace(trees, n_features=n_features, feature=place[trees.feature].astype(np.int32))

    plain: dict[str, Any] = {"n_held": n_held, "carries": False, "slope": 1.0, "shift": np.zeros(n_scores)}
    first: Any = nodes_of(stage)[0]
    if isinstance(first, MixtureStage) or (isinstance(stage, CascadeStage) and stage.turn is None):
        calibration = first.calibration
        binary = len(calibration) == 2 and n_scores == 1
        slope, shift = (calibration[0], calibration[1:]) if binary else (calibration[-1], calibration[:-1])
        plain |= {"carries": True, "start": np.zeros(0), "slope": float(slope), "shift": shift}
        if isinstance(first, MixtureStage):
            return DeviceStage(**plain, trees=TreeEnsemble.empty(n_order, n_scores), margin=-1.0)
        gate = None if first.gate is None else placed(first.gate, reads_scores=True)
        margin = -1.0 if gate is None else 0.0
        return DeviceStage(**plain, trees=placed(first.trees), gate=gate, margin=margin)
    if isinstance(stage, ConfidentStage):
        return DeviceStage(**plain, trees=placed(stage.cheap), start=stage.base, margin=-1.0)
    if isinstance(stage, LeafStage):
        trees, margin = placed(stage.trees), stage.margin
        return DeviceStage(**plain, trees=trees, start=stage.base, gate_first=True, margin=margin)
    if isinstance(stage, BoostedStage):
        trees, gate = placed(stage.cheap), placed(stage.gate, reads_scores=stage.gate_reads_score)
        start = float(stage.base[0])
        return DeviceStage(**plain, trees=trees, start=stage.base[1:], gate=gate, gate_start=start)
    raise InvalidInputError(
        f"stages of trees and trees of purchases can be exported; this system has a {type(first).__name__}. Fit "
        f"BudgetedClassifier or BudgetedRegressor, or an estimator of DynaMod with trees."
    )


def with_leaves(chain: Chain, leaves: str) -> Chain:
    """Round the values of all leaves: the chain that is returned gives the device's scores to the last bit.

    With "int16" they are 16-bit multiples of a power of two, one power for each ensemble, and what sums start from are
    multiples of the smallest of these, so that every value and every sum is exact in double precision, and a sum is a
    whole number of 32 bits. The trees of a cascade are in single precision anyway.
    """
    is_narrow = leaves == "int16"
    unit = score_unit(device_model(chain, ())) if is_narrow else 0.0

    def rounded(trees: TreeEnsemble, least: float) -> TreeEnsemble:
        if not is_narrow:
            return replace(trees, values=trees.values.astype(np.float32).astype(np.float64))
        of_leaf = leaf_unit(trees, least)
        return replace(trees, values=np.rint(trees.values / of_leaf) * of_leaf)

    def in_units(start: Floats | None) -> Floats | None:
        return np.rint(start / unit) * unit if is_narrow and start is not None else start

    stages = []
    for stage in chain.stages:
        base = {"base": in_units(stage.base)} if hasattr(stage, "base") else {}
        gate = with_trees(stage, ("gate",), lambda trees: rounded(trees, 0.0))
        stages.append(with_trees(gate, ("trees", "cheap"), lambda trees: rounded(trees, unit), **base))
    return replace(chain, stages=tuple(stages), base=in_units(chain.base))


def with_trees(
    stage: Any, names: Sequence[str], change: Callable[[TreeEnsemble], TreeEnsemble], **fields: Any
) -> Any:
    """The stage with some of its ensembles, where it has them, and other fields changed."""
    ensembles = {name: getattr(stage, name, None) for name in names}
    changed = {name: change(trees) for name, trees in ensembles.items() if isinstance(trees, TreeEnsemble)}
    return replace(stage, **changed, **fields)


def leaf_unit(trees: TreeEnsemble, least: float = 0.0) -> float:
    """The power of two, at least ``least``, whose 16-bit multiples cover the values of all leaves."""
    largest = float(np.abs(trees.values).max(initial=0.0))
    return max(2.0 ** np.ceil(np.log2(largest / 32767)) if largest else 0.0, least) or 1.0


def score_unit(model: DeviceModel) -> float:
    """The power of two that sums of 16-bit leaves are multiples of: none exceeds 2^30 of them.

    What is rounded to its multiples has the same unit, or a smaller one.
    """
    trees = [stage.trees for stage in model.stages if stage.trees.values.any()]
    starts = [model.base, *(stage.start for stage in model.stages)]
    largest = max((float(np.abs(start).max(initial=0.0)) for start in starts), default=0.0)
    total = sum(2.0**15 * ensemble.n_trees * leaf_unit(ensemble) for ensemble in trees)
    least = [2.0 ** np.ceil(np.log2(bound)) / 2**29 for bound in (largest, total) if bound]
    return max([min((leaf_unit(ensemble) for ensemble in trees), default=0.0), *least]) or 1.0


def leaf_depths(trees: TreeEnsemble) -> Floats:
    """Comparisons on the way to each leaf, shape (n_leaves,)."""
    depth, of_leaf = np.zeros(len(trees.feature)), np.zeros(len(trees.values))
    for node, children in enumerate(trees.children.tolist()):
        for child in children:
            if child < 0:
                of_leaf[~child] = depth[node] + 1
            else:
                depth[child] = depth[node] + 1
    return of_leaf


def node_sets(trees: TreeEnsemble, model: DeviceModel) -> dict[int, Any]:
    """Levels that go left, by node, of all nodes that read a column of levels."""
    sets: dict[int, Any] = {}
    if trees.sets is not None:
        for node, first, end in zip(
            trees.sets.nodes, trees.sets.offsets, trees.sets.offsets[1:], strict=False
        ):
            sets[int(node)] = trees.sets.levels[first:end]
    for place, column in enumerate(model.order.tolist()):
        for node in np.flatnonzero(trees.feature == place).tolist() if column in model.levels else ():
            if node not in sets:  # a comparison of numbers of levels is a set, too
                sets[node] = np.flatnonzero(np.arange(len(model.levels[column])) <= trees.threshold[node])
    return sets


def point_table(model: DeviceModel) -> tuple[Floats, list[tuple[int, int, int, int]]]:
    """Rows of thresholds; and of each operating point its lower and upper row, the word of its seed, and a limit.

    A key follows the upper row iff its chance, of 53 bits, is below the limit.
    """
    rows: dict[bytes, int] = {}
    kept: list[Floats] = []

    def row_of(thresholds: Floats) -> int:
        if thresholds.tobytes() not in rows:
            rows[thresholds.tobytes()] = len(kept)
            kept.append(thresholds)
        return rows[thresholds.tobytes()]

    points = []
    for policy in model.points:
        lower, upper = row_of(policy.thresholds[policy.lower]), row_of(policy.thresholds[policy.upper])
        seed = int(mix(np.array([policy.seed], dtype=np.uint64))[0])  # as ``key_chance`` adds it to a key
        points.append((lower, upper, seed, _chance_limit(policy)))
    return np.array(kept), points


def _chance_limit(policy: Policy) -> int:
    """Number of the 2^53 chances below the share, as ``Policy.follows_upper`` compares them."""
    return bisect_left(range(2**53), policy.share, key=lambda chance: (float(chance) + 0.5) / 2.0**53)
