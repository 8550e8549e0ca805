"""``export``: write a fitted system as source code for a device."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thrifty._version import __version__
from thrifty.arrays import Ints
from thrifty.bundle.container import Contents, pack, unpack
from thrifty.bundle.objects import to_bytes
from thrifty.device.c99 import TestRow, plan_of, round_down, source_of
from thrifty.device.model import DeviceModel, device_model, leaf_depths, with_leaves, with_trees
from thrifty.device.onnx_graph import onnx_files
from thrifty.engine.evidence.collect import chain_of, evidence_of
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.table.table import Table
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.mixture import MixtureStage
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import nodes_of
from thrifty.errors import InvalidInputError
from thrifty.files import AnyPath, check_path, parse_bytes, write_atomically

N_TEST_ROWS = 20
"""Rows of the self-test."""

DONE, ASK_SERVER = -1, -2
"""Ends of a session on a device."""


@dataclass(frozen=True)
class Exported:
    """Result of ``export``.

    Attributes
    ----------
    files : tuple of Path
        The files.
    identity : str
        Identity of the system, which a server compares.
    flash_bytes, table_bytes, state_bytes : int or None
        Bytes of tables and program in flash (on a Cortex-M4 by GCC with ``-Os``), of the tables alone, and of one
        session in RAM; None for ONNX, and the first for code and for a tree of purchases.
    most_steps : int
        Comparisons of a row that passes every stage by the longest ways.
    mean_steps : float or None
        Mean number of comparisons of the rows of ``X``; None without ``X``.
    n_moved : int or None
        Rows of ``X`` that go another way than before leaves were rounded or trees were cut; None without ``X``.
    system : Chain
        System that the source computes. Where ``max_flash`` or the type of the leaves changed it, no certificate of the
        system before holds for it: measure and certify this one, and serve it behind the device.
    """

    files: tuple[Path, ...]
    identity: str
    flash_bytes: int | None
    table_bytes: int | None
    state_bytes: int | None
    most_steps: int
    mean_steps: float | None
    n_moved: int | None
    system: Chain


def export(
    system: Any,
    folder: AnyPath,
    *,
    to: str = "c",
    leaves: str | None = None,
    layout: str = "table",
    max_flash: int | str | None = None,
    max_ram: int | str | None = None,
    budgets: Sequence[float] = (),
    X: Any = None,
    y: Any = None,
) -> Exported:
    """Write a fitted system as C99 source for a device, where a session asks for one column after another, or as ONNX.

    The device walks the stages, and says where the full model should be asked. Its purchases, routes and labels are
    those of ``start`` for every row of single precision, and so are its scores to the last bit; those of ONNX for every
    row, where the runtime has one thread.

    Parameters
    ----------
    system : fitted estimator of thrifty or Chain
        The system; its stages must be made of trees.
    folder : path
        Folder for ``thrifty_model.h`` and ``thrifty_model.c``; made if it does not exist, and must be empty.
    to : {"c", "onnx"}, default="c"
        The language. "onnx" writes ``thrifty_stage_N.onnx`` for every stage, and ``thrifty_model.onnx`` of all of them.
    leaves : {"float32", "int16"}, optional
        Type of the values of leaves in C; None is "float32". With "int16" they take half the bytes and are rounded,
        which may change routes.
    layout : {"table", "code"}, default="table"
        Whether trees are tables, or C functions of nested comparisons: faster, larger, and of a size that only the
        compiler knows.
    max_flash : int or str, optional
        Bytes of flash for tables and program, such as 32768 or "32k". Leaves are narrowed first, then trees are taken
        from the end of every stage, then the last stages; what is left is ``system`` of what is returned.
    max_ram : int or str, optional
        Bytes of RAM for a session, kept in the same way. A call takes up to 256 bytes of stack on top.
    budgets : sequence of float, default=()
        Mean costs of further operating points, numbered from 1; point 0 is the one in force.
    X : table, optional
        Rows on which to count the routes that change.
    y : array-like, optional
        Their labels. With ``max_flash`` they choose among what fits, and operating points are measured anew on them;
        without, the points of a system that is cut are not measured. They should be rows that nothing was fitted on.

    Returns
    -------
    exported : Exported
        The files, and what they take.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from thrifty import BudgetedClassifier, StageOptions, export
    >>> X, y = load_iris(return_X_y=True)
    >>> stages = StageOptions(max_stages=3, sizes=[(10, 3)], structure="line")
    >>> clf = BudgetedClassifier(GaussianNB(), stages=stages, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     exported = export(clf, folder)
    >>> [path.name for path in exported.files]
    ['thrifty_model.h', 'thrifty_model.c']
    """
    if to not in ("c", "onnx"):
        raise InvalidInputError(f'to must be "c" or "onnx"; got {to!r}.')
    if to == "onnx" and not (leaves is max_flash is max_ram is None and layout == "table"):
        raise InvalidInputError(
            "leaves, layout, max_flash and max_ram are settings of C; ONNX has leaves of double precision."
        )
    if layout not in ("table", "code") or (layout == "code" and max_flash is not None):
        raise InvalidInputError(
            f'layout must be "table", or "code" without max_flash, since only the compiler knows the size of code; got '
            f"{layout!r}."
        )
    if leaves not in (None, "float32", "int16"):
        raise InvalidInputError(f'leaves must be "float32" or "int16"; got {leaves!r}.')
    chain, kind = chain_of(system), leaves or "float32"
    if chain.policy.explore:
        raise InvalidInputError(
            f"this system goes on beyond the stop of {chain.policy.explore:.1%} of its rows, to learn from their "
            f"receipts, and a device writes none. Export system.at(budget=...), without explore."
        )
    target = _empty_folder(folder)
    limits = (
        np.inf if max_flash is None else parse_bytes(max_flash, "max_flash"),
        np.inf if max_ram is None else parse_bytes(max_ram, "max_ram"),
    )
    is_limited = min(limits) < np.inf
    is_tree = any(isinstance(node, MixtureStage) for stage in chain.stages for node in nodes_of(stage))
    if is_tree and (is_limited or kind == "int16"):
        raise InvalidInputError(
            "leaves of 16 bits, max_flash and max_ram are settings of lines; this system is a tree of purchases. "
            "Export it without them, or fit with StageOptions(structure='line') or `thrifty fit --structure line`."
        )

    def points(of_cut: Chain) -> tuple[Policy, ...]:
        is_whole = of_cut.policy is chain.policy and not isinstance(system, Chain)
        at_each = (
            system.at(budget=float(budget)).chain_.policy if is_whole else of_cut.policy.within(float(budget))
            for budget in budgets
        )
        return (of_cut.policy, *at_each)

    rounded = chain
    if is_limited:
        rounded, kind = within_limits(chain, kind, layout, points, limits, X, y)
    elif to == "c":
        rounded = with_leaves(chain, kind)
    model = device_model(rounded, points(rounded))
    if is_limited and y is None and _n_trees(rounded) != _n_trees(chain):
        unknown = np.full(len(rounded.policy), np.nan)
        rounded = rounded.at(replace(rounded.policy, cost=unknown, score=unknown))
    identity = identity_of(rounded if is_limited else chain)
    plan = None
    if to == "onnx":
        files = onnx_files(model, identity, __version__)
    else:
        rows = _test_rows(rounded, model)
        header, program, plan = source_of(model, identity, __version__, kind, layout, rows)
        files = {"thrifty_model.h": header.encode(), "thrifty_model.c": program.encode()}
    target.mkdir(exist_ok=True)
    for name, data in files.items():
        write_atomically(target / name, data)
    moved = mean_steps = None
    if X is not None:
        mean_steps = _mean_steps(rounded, model, X)
        moved = int(np.count_nonzero(_ends(chain, X) != _ends(rounded, X)))
    return Exported(
        files=tuple(target / name for name in files),
        identity=identity,
        flash_bytes=None if plan is None or is_tree or layout == "code" else plan.flash_bytes,
        table_bytes=None if plan is None else plan.table_bytes,
        state_bytes=None if plan is None else plan.state_bytes,
        most_steps=int(sum(_longest(trees) for trees in model.ensembles)),
        mean_steps=mean_steps,
        n_moved=moved,
        system=rounded,
    )


def _ends(chain: Chain, X: Any) -> Ints:
    """Stage at which each row stops; -1 where the full model is asked."""
    route = chain.walk(chain.reader(X)).route
    return np.where(route == chain.n_stages, -1, route)


def _longest(trees: TreeEnsemble) -> float:
    """Comparisons on the longest ways down all trees."""
    if not trees.n_trees:
        return 0.0
    return float(np.maximum.reduceat(leaf_depths(trees), trees.leaf_offsets[:-1]).sum())


def _mean_steps(chain: Chain, model: DeviceModel, X: Any) -> float:
    """Mean number of comparisons of some rows, at the operating point in force."""
    reader = chain.reader(X)
    route, scores = chain.walk(reader).route, chain.visit_all(reader).scores
    steps = 0.0
    for place, stage in enumerate(model.stages):
        rows = np.flatnonzero(route >= place)
        block = np.asarray(reader.block(rows, model.order))
        for trees in (stage.trees, stage.gate) if rows.size else ():
            if trees is not None:
                depths = replace(trees, values=leaf_depths(trees)[:, None])
                read = block if trees is stage.trees else np.hstack([block, scores[rows, place]])
                steps += float(depths.predict(read[:, : trees.n_features]).sum())
    return steps / len(route)


def _n_trees(chain: Chain) -> list[int]:
    """Number of trees of every ensemble of a chain."""
    return [trees.n_trees for trees in device_model(chain, ()).ensembles]


def identity_of(chain: Chain) -> str:
    """Sixteen hexadecimal digits that two chains share only if their stages are the same.

    Neither operating points nor the version of thrifty are part of it.
    """
    nowhere = Policy.of(np.zeros(chain.policy.n_stages))
    contents = unpack(to_bytes(chain.at(nowhere), full="absent", evidence=False))
    data = pack(Contents({"objects": contents.facts["objects"]}, contents.arrays))
    return hashlib.sha256(data).hexdigest()[:16]


def _empty_folder(folder: AnyPath) -> Path:
    target = Path(os.path.realpath(check_path(folder)))
    if target.exists() and not target.is_dir():
        raise InvalidInputError(f"{folder} is a file. Name a folder for the source.")
    if target.is_dir() and any(target.iterdir()):
        raise InvalidInputError(f"{folder} is not empty. Name a new folder, or empty this one.")
    if not target.parent.is_dir():
        raise InvalidInputError(
            f"{folder} cannot be made: there is no folder {target.parent}. Make it first."
        )
    return target


def _test_rows(chain: Chain, model: DeviceModel) -> list[TestRow]:
    """Rows on, above and between thresholds, and with missing values, each with its way through the chain."""
    rng = np.random.default_rng(0)
    thresholds: dict[int, list[Any]] = {place: [] for place in range(len(model.order))}
    for trees in model.ensembles:
        single = round_down(trees.threshold)
        for place in thresholds:
            is_inner = np.abs(single) < np.finfo(np.float32).max  # there is a float above it
            thresholds[place] += single[(trees.feature == place) & is_inner].tolist()
    if model.tree is not None:
        mixture = model.tree.mixture
        for place, start, end in zip(
            mixture.columns.tolist(), mixture.offsets, mixture.offsets[1:], strict=False
        ):
            thresholds[place] += round_down(mixture.ends[start:end]).tolist()
    rows = np.full((N_TEST_ROWS, len(model.names)), np.nan, dtype=np.float32)
    for values in rows:
        for place, column in enumerate(model.order.tolist()):
            cuts = thresholds[place]
            if rng.random() < 0.1:
                continue
            if column in model.levels:
                values[column] = rng.integers(len(model.levels[column]))
            elif cuts:
                values[column] = cuts[rng.integers(len(cuts))]
                if rng.random() < 0.3:
                    values[column] = np.nextafter(values[column], np.float32(np.inf))
            else:
                values[column] = rng.normal()
    reader = Table(rows.astype(np.float64), None)
    walk = chain.walker.walk(reader, np.arange(N_TEST_ROWS), chain.policy)
    labels = chain.task.best(walk.scores) if model.classes else np.full(N_TEST_ROWS, -1)  # type: ignore[attr-defined]
    n_stages = len(model.stages)
    last = np.minimum(walk.route, n_stages - 1)
    n_held = np.array([stage.n_held for stage in model.stages])[last]
    if model.tree is not None:
        assert walk.node is not None  # rows of a tree have nodes
        ends = zip(last.tolist(), walk.node.tolist(), strict=True)
        n_held = np.array([len(model.tree.levels[place][node].held) for place, node in ends])
    return [
        TestRow(
            key,
            rows[key],
            DONE if route < n_stages else ASK_SERVER,
            int(n_held[key]),
            int(labels[key]),
        )
        for key, route in enumerate(walk.route.tolist())
    ]


# -- limits of flash and RAM -----------------------------------------------------------------------


FEWEST_TREES = 0.25
"""Share of the trees of each stage that are kept before stages are taken, where there are no labelled rows."""

N_SHARES = 32
"""Shares of trees that are tried."""


def within_limits(
    chain: Chain,
    leaves: str,
    layout: str,
    points: Callable[[Chain], tuple[Policy, ...]],
    limits: tuple[float, float],
    X: Any = None,
    y: Any = None,
) -> tuple[Chain, str]:
    """The chain that fits, and the type of its leaves.

    Parameters
    ----------
    chain : Chain
        As learned.
    leaves : {"float32", "int16"}
        Type to begin with.
    layout : {"table", "code"}
        Of the trees.
    points : callable
        Operating points of a chain.
    limits : tuple of float
        Bytes of flash for tables and program, and bytes of RAM for a session.
    X, y : table and labels, optional
        Rows that choose among what fits: the best at the mean cost of the point in force. Without them as many stages
        are kept as fit with a quarter of their trees.
    """
    has_rows = X is not None and y is not None

    def takes(chain: Chain, kind: str) -> tuple[int, int]:
        more = points(chain)
        plan = plan_of(device_model(with_leaves(chain, kind), more), kind, layout)
        # A point that rows choose anew may mix two rows of thresholds where it was one.
        program = 0 if plan.flags["IS_MIXED"] else 280
        reserve = (8 * len(chain.stages) + 20) * len(more) + program if has_rows else 0
        return plan.flash_bytes + reserve, plan.state_bytes

    def fits(chain: Chain, kind: str) -> bool:
        return all(taken <= limit for taken, limit in zip(takes(chain, kind), limits, strict=True))

    for kind in dict.fromkeys((leaves, "int16")):
        if fits(chain, kind):
            return _measured(with_leaves(chain, kind), X, y), kind
    candidates = list(_fitting(chain, lambda smaller: fits(smaller, "int16")))
    if not candidates:
        smallest = takes(_cut(chain, 1, 1), "int16")
        name, least, limit = next(
            limit
            for limit in zip(("max_flash", "max_ram"), smallest, limits, strict=True)
            if limit[1] > limit[2]
        )
        raise InvalidInputError(
            f"{name} must be at least {least:,} bytes, which the first stage with the first of its trees takes; "
            f"got {limit:,.0f}. Raise it, or export fewer operating points."
        )
    cut = [(share, _measured(with_leaves(smaller, "int16"), X, y)) for share, smaller in candidates]
    if has_rows:
        return max((smaller for _, smaller in cut), key=lambda chain: chain.policy.expected_score), "int16"
    return next((smaller for share, smaller in cut if share >= FEWEST_TREES), cut[-1][1]), "int16"


def _fitting(chain: Chain, fits: Callable[[Chain], bool]) -> Iterator[tuple[float, Chain]]:
    """For every number of stages, the most first, the largest share of trees that fits."""
    for n_stages in range(len(chain.stages), 0, -1):
        low, high = 0, N_SHARES
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(_cut(chain, n_stages, middle)) else (low, middle - 1)
        if low:
            yield low / N_SHARES, _cut(chain, n_stages, low)
        if low == N_SHARES:
            return


def _cut(chain: Chain, n_stages: int, part: int) -> Chain:
    """The first stages, with a part of ``N_SHARES`` of the first trees of each ensemble."""

    def cut(trees: TreeEnsemble) -> TreeEnsemble:
        return trees.first(max(-(-trees.n_trees * part // N_SHARES), 1)) if trees.n_trees else trees

    stages = chain.stages[:n_stages]
    changes: dict[str, Any] = {
        "stages": tuple(with_trees(stage, ("trees", "cheap", "gate"), cut) for stage in stages)
    }
    if n_stages < len(chain.stages):
        # The blend was learned for the scores of the last stage, which is gone.
        thresholds = chain.policy.thresholds[:, :n_stages]
        changes |= {"policy": replace(chain.policy, thresholds=thresholds), "blend": None}
    return replace(chain, **changes)


def _measured(chain: Chain, X: Any, y: Any) -> Chain:
    """The chain with its operating points measured anew, at the mean cost of the one in force; itself without rows."""
    if X is None or y is None:
        return chain
    frontier = Frontier.from_evidence([evidence_of(chain, X, y)])
    policy = Policy(frontier.thresholds, frontier.cost, frontier.score, seed=chain.policy.seed)
    return chain.at(policy.within(max(chain.policy.expected_cost, float(frontier.cost[0]))))
