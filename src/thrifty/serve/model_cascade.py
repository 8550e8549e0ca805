"""A cascade of models made ready to serve: models in its file, ONNX files and remote models, mixed.

**The rows of a request go through the plan together, in one batch per model.** A thread of its own follows the plan and
waits for models: those of this process answer in the two threads of full models, remote ones in the event loop.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.full.model import AbsentFull, FullModel, PrecomputedFull
from thrifty.engine.full.onnx_model import OnnxModel
from thrifty.engine.table.reader import Cells
from thrifty.errors import (
    FullModelDownError,
    FullModelFailedError,
    InvalidInputError,
)
from thrifty.learners.routing.model_cascade import ModelCascade, Run
from thrifty.serve.budget_controller import BudgetController, BudgetsController, resources_of
from thrifty.serve.config import Config, EstimatorSettings
from thrifty.serve.inference_protocol import Answered, RequestCells, RequestRows, output_types
from thrifty.serve.metrics import Drift
from thrifty.serve.model import FullInThread
from thrifty.serve.providers import failure_reason
from thrifty.serve.remote import RemoteFull, RemoteModel

_OF_CHAINS = ("full", "providers", "explore", "receipts", "budget_cap")
"""Settings that a cascade of models has no use for."""


class ServedCascade:
    """A cascade of models made ready to serve; see ``Served``, and ``Model``, whose interface it has.

    Parameters
    ----------
    cascade : ModelCascade
        The plan, and the models in its file.
    version : str
        Version, as clients see it.
    config : Config
        Limits, and the models that are elsewhere.
    batch_thread, full_thread : Executor
        The threads in which models of this process answer batches and other requests.
    runners : Executor
        Threads that follow the plan.
    remotes : dict of str to RemoteModel
        Remote models by name.
    """

    identity = ""
    drift: Drift | None = None

    def __init__(
        self,
        cascade: ModelCascade,
        *,
        version: str,
        config: Config,
        batch_thread: Executor,
        full_thread: Executor,
        runners: Executor,
        remotes: Mapping[str, RemoteModel],
    ) -> None:
        for name in _OF_CHAINS:
            if getattr(config, name):
                raise InvalidInputError(
                    f"{name} is a setting of cascades of columns; got {getattr(config, name)!r}, and the file holds a "
                    f"cascade of models. Leave it out; [models.NAME] says where a model is."
                )
        router, self.task, self.version = cascade.router_, cascade.task_, version
        self.routes = (*router.pool_, "none")  # -1 is the last one
        absent = [name for name in router.pool_ if isinstance(cascade.models_[name], AbsentFull)]
        self._settings = config.models_of(EstimatorSettings, cascade.models_, absent)
        self._on_failure, self._remotes, self._runners = config.on_remote_failure, remotes, runners
        self._batch_thread, self._full_thread = batch_thread, full_thread
        self.rows = RequestRows(
            cascade.schema_,
            unseen_is_missing=config.unseen == "missing",
            max_rows=config.max_rows,
            row_key=config.row_key,
        )
        self.system = copy.copy(cascade)
        self.system.models_ = {name: self._placed(name, model) for name, model in cascade.models_.items()}
        self.classes, self.is_number = self.task.classes, len(self.task.classes) == 0
        self.rival = router.best_model
        self.cost_of_full = router.model_costs[self.rival]
        self.n_outputs = len(self.classes) or 1
        self.parameters = {"models": router.pool_}
        self.output_types = output_types(self.task) | {"route": "BYTES", "asked": "BYTES"}
        self.controller: BudgetController | BudgetsController | None = None
        self.resources = resources_of(cascade)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Outputs of the model."""
        outputs = ("probability", "probabilities", "route", "cost", "degraded", "asked")
        return ("answer", *outputs[2 if self.is_number else 0 :], *self.cost_outputs)

    @property
    def cost_outputs(self) -> tuple[str, ...]:
        """Outputs with the cost in each of several resources."""
        return tuple(f"cost_{name}" for name in self.cost_names)

    @property
    def cost_names(self) -> tuple[str, ...]:
        """Several resources that answers cost; none where there is one."""
        return () if self.resources is None else self.resources.names

    def _placed(self, name: str, model: FullModel) -> FullModel:
        """A model where the settings say that it is, or the one in the file."""
        columns = self.system.schema_of(name).names
        if name in self._remotes:
            return RemoteFull(self._remotes[name], self.task, columns)
        settings = self._settings.get(name)
        if settings is not None and settings.onnx is not None:
            model = OnnxModel(Path(settings.onnx), self.task, columns)
        return FullInThread(model, self._full_thread, self._batch_thread)

    def warm_up(self) -> None:
        """Follow the plan for a row of zeros and no model's answer, so that the first request waits for no compiler."""
        nothing = PrecomputedFull(self.task.outputs(np.zeros((1, self.task.n_scores))))
        plan, names = copy.copy(self.system), self.rows.names
        plan.models_ = dict.fromkeys(plan.models_, nothing)
        row = Cells(names, np.zeros((1, len(names))), np.ones(1, np.intp), np.zeros(1, np.uint64))
        plan.run(plan.schema_.table_of(row), warns=False)

    async def answer(self, cells: RequestCells, *, asks_full: bool = False) -> Answered:  # noqa: ARG002 - no device
        """Answer the rows of a request."""
        cells.refuse_unreadable()
        return await asyncio.get_running_loop().run_in_executor(self._runners, self._answer, cells)

    def _answer(self, cells: RequestCells) -> Answered:
        """Follow the plan, within the budget if there is one."""
        table = self.system.schema_.table_of(cells)

        def run(plan: ModelCascade, _: Ints) -> tuple[Run, Floats]:
            result = plan.run(table, warns=False)
            return result, result.cost if result.costs is None else result.costs

        everyone, controller = np.arange(len(cells)), self.controller
        try:  # all rows are one piece for the controller
            result = controller.in_pieces(everyone, run)[0] if controller else run(self.system, everyone)[0]
        except FullModelFailedError as error:  # no model answers some row
            raise FullModelDownError(failure_reason(error)) from error
        asked, model = ~np.isnan(result.asked_outputs[:, :, 0]) | result.failed, result.model
        asked_rival = np.any(asked & [name == self.rival for name in self.routes[:-1]], axis=1)
        failures = {
            int(row): f"model_{self.routes[model]}" for row, model in np.argwhere(result.failed)[::-1]
        }
        if failures and self._on_failure == "error":
            raise FullModelDownError(", ".join(sorted(set(failures.values()))))
        if self._on_failure == "abstain":
            model[list(failures)] = -1
        return Answered(
            self.task,
            model,
            self.system.outputs_of(result),
            result.cost,
            asked_rival,
            failures,
            routes=self.routes,
            asked_models=asked,
            costs={} if result.costs is None else dict(zip(self.cost_names, result.costs.T, strict=True)),
        )

    async def in_batch_thread(self, call: Callable[[], Any]) -> Any:
        """Result of a call in the thread of batches, while other requests are read."""
        return await asyncio.get_running_loop().run_in_executor(self._batch_thread, call)
