"""The gateway: the model in force, reloads and changes of the budget.

A request looks up the model once, when it starts. On a reload the old one serves until the new one is whole; a file
that cannot be read, or that cannot hold the budget, changes nothing.
"""

import asyncio
import hashlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from prometheus_client import generate_latest

from thrifty.bundle.save_load import load
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.purchases.sources import RetryingSource
from thrifty.engine.table.training import Spread
from thrifty.errors import InvalidInputError
from thrifty.files import read_capped
from thrifty.learners.routing.model_cascade import ModelCascade
from thrifty.serve.budget_controller import BudgetController, BudgetsController, Spending
from thrifty.serve.config import Config, EstimatorSettings, key_from
from thrifty.serve.csv_log import CsvLog
from thrifty.serve.metrics import Drift, Metrics, Served, status_of
from thrifty.serve.middleware import LOG, Keys, Room
from thrifty.serve.model import Model, columns_of_receipts
from thrifty.serve.model_cascade import ServedCascade
from thrifty.serve.providers import Provider
from thrifty.serve.remote import RemoteModel

InForce = TypeVar("InForce", bound=Served)


@dataclass(frozen=True)
class Loaded:
    """A system that was read from a file, and its version."""

    system: Any
    version: str


def load_version(path: Path, public_key: Path | None) -> Loaded:
    """Load a file; its version is the beginning of its SHA-256."""
    version = hashlib.sha256(read_capped(path, 2**30)).hexdigest()[:12]
    return Loaded(load(path, public_key=public_key), version)


class BaseGateway(ABC, Generic[InForce]):
    """The model in force, and what outlives a reload: metrics, room for requests, keys.

    Parameters
    ----------
    system : Loaded, fitted estimator, router or Chain
        What answers first.
    config : Config
        Settings.
    load : callable, optional
        Reads the file again.

    Attributes
    ----------
    model : Served
        What serves.
    budget : float, optional
        Mean cost per row that is to be spent; None is the operating point of the file.
    room : Room
        Places of requests.
    """

    def __init__(self, system: Any, config: Config, load: Callable[[], Loaded] | None = None) -> None:
        self.config, self.metrics, self.keys = config, Metrics(), Keys(config)
        self.room = Room(config, self.metrics)
        self.is_ready, self.budget = False, config.budget
        self._load = load
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changing = asyncio.Lock()
        self.model: InForce = self._made(system)

    def _made(self, system: Any) -> InForce:
        return self._serving(system if isinstance(system, Loaded) else Loaded(system, "1"))

    @abstractmethod
    def _serving(self, loaded: Loaded) -> InForce:
        """Make a system ready to serve."""

    # -- from start to end -------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to answer requests."""
        self.is_ready = True

    async def close(self) -> None:
        """Stop to answer requests, and close connections."""
        self.is_ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def in_background(self, work: Any) -> None:
        """Run a coroutine that no request waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- metrics and status ------------------------------------------------------------------------

    def refresh(self) -> dict[str, Any]:
        """Bring gauges up to date; returns what the status page shows besides metrics."""
        show = self.metrics.show
        show("in_flight", "Requests under way.", self.room.n_taken, merge="livesum")
        show("ready", "Whether the gateway answers.", self.is_ready, merge="livemin")
        show("worker_rows", "Rows answered by each process.", self.metrics.n_rows, merge="liveall")
        return {
            "name": self.config.name,
            "version": self.model.version,
            "seconds": time.time() - self.metrics.started,
            "cost_of_full": self.model.cost_of_full,
            "rival": self.model.rival,
            "budget": self.budget,
            "on_remote_failure": self.config.on_remote_failure,
            "breaker": None,
            "routes": self.model.routes,
        }

    async def prometheus(self) -> bytes:
        """Metrics as Prometheus reads them."""
        self.refresh()
        return generate_latest(self.metrics.registry)

    async def status(self) -> dict[str, Any]:
        """Contents of the status page."""
        facts = self.refresh()
        return {**facts, **status_of(self.metrics.registry.collect(), facts["routes"])}

    # -- changes -----------------------------------------------------------------------------------

    @abstractmethod
    async def change_budget(self, budget: Any) -> None:
        """Hold another budget from now on; None goes back to the operating point of the file."""

    async def reload(self) -> str:
        """Read the file, and that of the keys, again, and serve what it holds; returns its version."""
        if self._load is None:
            raise InvalidInputError(
                "what is served was not read from a file, so there is none to read again."
            )
        read = self._load
        async with self._changing:
            try:
                self.keys.read()
                # Not the thread that answers: requests go on meanwhile.
                model = await asyncio.to_thread(lambda: self._made(read()))
            except Exception as error:
                self.metrics.reloads.labels("refused").inc()
                LOG.warning("the file was not taken: %s", error)
                if isinstance(error, InvalidInputError):
                    raise
                raise InvalidInputError(f"the file was not taken: {error}") from error
            self.model = model
            self.metrics.reloads.labels("done").inc()
            return model.version


class Gateway(BaseGateway[Model | ServedCascade]):
    """Serves a chain of stages, or a cascade of models.

    Parameters
    ----------
    system, config, load
        As of ``BaseGateway``.
    remote : RemoteModel, optional
        The remote full model; None is the one of ``config.full``.
    sources : dict of str to RetryingSource, optional
        Sources of providers by name, instead of those that ``config.providers`` describes: they are asked ``over`` the
        keys of each request.
    spending : dict of str to Spending, optional
        What rows have paid, shared with other processes: by resource of the budget, or "" where there is one.
    """

    def __init__(
        self,
        system: Any,
        config: Config,
        *,
        load: Callable[[], Loaded] | None = None,
        remote: RemoteModel | None = None,
        sources: Mapping[str, RetryingSource] | None = None,
        spending: Mapping[str, Spending] | None = None,
    ) -> None:
        if config.tenants:
            raise InvalidInputError(
                f"[tenants.{next(iter(config.tenants))}] is for routers, whose calls cost dollars; the file holds none."
            )
        if remote is None and config.full is not None:
            remote = RemoteModel(config.full, settings=config.remote, api_key=config.remote_api_key)
        self.remote = remote
        self.remotes = {
            name: RemoteModel(settings.url, settings=settings, api_key=key_from(settings.key_env))
            for name, settings in config.models.items()
            if isinstance(settings, EstimatorSettings) and settings.url is not None
        }
        if remote is not None:
            self.remotes["full"] = remote
        self._shared = spending
        self._spending: dict[str, Spending] = {} if spending is None else dict(spending)
        self._batch_thread = ThreadPoolExecutor(1, thread_name_prefix="thrifty-batch")
        self._full_thread = ThreadPoolExecutor(1, thread_name_prefix="thrifty-full")
        # A request waits for no other one's purchases; threads are started as they are needed.
        self._buyers = ThreadPoolExecutor(config.max_in_flight, thread_name_prefix="thrifty-buy")
        self.providers = tuple(
            Provider(name, settings, (sources or {}).get(name)) for name, settings in config.providers.items()
        )
        self._receipts: CsvLog | None = None
        super().__init__(system, config, load)

    async def start(self) -> None:
        """Start to answer requests."""
        for remote in self.remotes.values():
            await remote.start()
        await super().start()

    async def close(self) -> None:
        """Stop to answer requests, and close connections."""
        await super().close()
        for remote in self.remotes.values():
            await remote.close()
        for pool in (self._batch_thread, self._full_thread, self._buyers):
            pool.shutdown(wait=False, cancel_futures=True)
        if self._receipts is not None:
            self._receipts.close()

    def refresh(self) -> dict[str, Any]:
        """Bring gauges up to date; returns what the status page shows besides metrics."""
        facts, model, metrics = super().refresh(), self.model, self.metrics
        missing = dict(zip(model.rows.names, metrics.missing_share(model.rows.names).tolist(), strict=True))
        about = "Share of rows in which a feature is missing or was not sent."
        metrics.show("missing_share", about, missing, "feature")
        if model.drift is not None:
            drift = dict(zip(model.rows.names, model.drift.by_column().tolist(), strict=True))
            about = "Population-stability index of a feature against the rows of the fit; above 0.25 it has drifted."
            metrics.show("drift", about, drift, "feature")
        for provider in self.providers:
            outcomes, failures = dict(provider.outcomes), dict(provider.failures)
            metrics.publish(metrics.purchases, {(provider.name, key): n for key, n in outcomes.items()})
            metrics.publish(
                metrics.purchase_failures, {(provider.name, key): n for key, n in failures.items()}
            )
        if remotes := self.remotes.values():
            failures = sum((Counter(remote.failures) for remote in remotes), Counter[str]())
            metrics.publish(metrics.remote_calls, {(): sum(remote.calls for remote in remotes)})
            metrics.publish(metrics.remote_retries, {(): sum(remote.retries for remote in remotes)})
            metrics.publish(metrics.remote_failures, {(reason,): n for reason, n in failures.items()})
            in_flight = sum(remote.breaker.in_flight for remote in remotes)
            metrics.show("remote_in_flight", "Calls of remote models under way.", in_flight, merge="livesum")
            states = {remote.breaker.state for remote in remotes}
            facts["breaker"] = next(state for state in ("open", "half_open", "closed") if state in states)
            metrics.show("breaker_open", "Whether a breaker is not closed.", facts["breaker"] != "closed")
        if model.resources is not None:
            about = "What rows paid, by resource."
            metrics.show("spend_by_resource", about, metrics.paid_by_resource, "resource", merge="sum")
        if (controller := model.controller) is not None:
            for name, about in (
                ("target", "Mean cost per row that is to be spent."),
                ("mean_spend", "Mean cost per row of late."),
                ("setpoint", "Mean cost of the operating point in force."),
                ("capped", "Whether the cap keeps rows from the full model."),
            ):
                facts[name] = getattr(controller, name)
                if isinstance(facts[name], dict):
                    metrics.show(f"budgets_{name}", f"{about[:-1]}, by resource.", facts[name], "resource")
                else:
                    metrics.show(f"budget_{name}", about, facts[name])
        return facts

    async def change_budget(self, budget: Any) -> None:
        """Hold another budget from now on; None goes back to the operating point of the file."""
        controller = None
        if budget is None and self.config.budget_cap is not None:
            raise InvalidInputError(
                f"the budget cannot be given up while budget_cap = {self.config.budget_cap!r} is to hold. Name another "
                f"budget, or start without the cap."
            )
        if budget is not None:
            budget = budget if isinstance(budget, dict) else check_amount("budget", budget)
            controller = self.model.controller
            if controller is None or isinstance(budget, dict) or isinstance(controller, BudgetsController):
                controller = self._controller(self.model, budget)
            else:
                controller.target = budget
        self.model.controller, self.budget = controller, budget

    def _serving(self, loaded: Loaded) -> Model | ServedCascade:
        how: dict[str, Any] = {
            "version": loaded.version,
            "config": self.config,
            "batch_thread": self._batch_thread,
            "full_thread": self._full_thread,
        }
        model: Model | ServedCascade
        if isinstance(loaded.system, ModelCascade):
            model = ServedCascade(loaded.system, runners=self._buyers, remotes=self.remotes, **how)
        else:
            model = Model(
                loaded.system, buyers=self._buyers, providers=self.providers, remote=self.remote, **how
            )
            if self.config.receipts is not None:
                model.receipts = self._receipts = self._receipts_of(model, self.config.receipts)
        model.warm_up()
        spread = Spread.of_system(model.system)
        model.drift = None if spread is None else Drift(spread)
        if self.budget is not None:
            model.controller = self._controller(model, self.budget)
        return model

    def _receipts_of(self, model: Model, path: str) -> CsvLog:
        """The log of receipts, for the columns of a model; a reload goes on with it."""
        columns, log = columns_of_receipts(model.rows), self._receipts
        if log is None:
            return CsvLog(Path(path), columns, self.config.max_receipts_bytes, self.metrics.unlogged)
        if log.columns != columns:
            raise InvalidInputError(
                f"receipts are written to {path}, whose columns are not those of this system. Serve it with another "
                f"file of receipts."
            )
        return log

    def _controller(
        self, model: Model | ServedCascade, budget: float | dict[str, float]
    ) -> BudgetController | BudgetsController:
        system, window = model.chain if isinstance(model, Model) else model.system, self.config.budget_window
        if isinstance(budget, dict):
            if self.config.budget_cap is not None:
                raise InvalidInputError(
                    "budget_cap takes prices in one resource. Leave it out, or serve a system that was saved at a cap "
                    "per row: at(cap=...)."
                )
            return BudgetsController(
                system,
                target=budget,
                window=window,
                is_at_hand_free=bool(self.providers),
                spending=self._spending_of,
            )
        return BudgetController(
            system,
            target=budget,
            window=window,
            cap=self.config.budget_cap,
            is_at_hand_free=bool(self.providers),
            spending=self._spending_of(""),
            evidence=getattr(model.system, "evidence_", None),
        )

    def _spending_of(self, resource: str) -> Spending:
        """What rows have paid in a resource, "" being the only one; kept from one budget to the next."""
        if resource not in self._spending:
            if self._shared is not None:
                named = ", ".join(filter(None, self._shared)) or "one resource"
                raise InvalidInputError(
                    f"workers share what rows paid in the resources that they were started with, {named}; got a budget "
                    f"of {resource or 'one resource'}. Start the gateway with the budgets that it is to hold."
                )
            self._spending[resource] = Spending(self.config.budget_window)
        return self._spending[resource]
