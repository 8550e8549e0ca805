"""The gateway: the model that serves now, reloads and changes of the budget.

A request looks up the model once, when it starts. On a reload the old model serves until the new one is whole; a file
that cannot be read, or that cannot hold the budget, changes nothing.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from thrifty.bundle.save_load import load
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.purchases.sources import RetryingSource
from thrifty.engine.table.drift import Spread
from thrifty.engine.walk.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.files import read_capped
from thrifty.serve.admission import Keys, Limiter
from thrifty.serve.budget_controller import BudgetController, Spending
from thrifty.serve.config import Config
from thrifty.serve.logs import LOG
from thrifty.serve.metrics import Drift, Metrics, registry_of, status_of
from thrifty.serve.model import Model
from thrifty.serve.providers import Provider
from thrifty.serve.remote import RemoteModel

__all__ = ["Gateway", "Loaded", "load_version"]


@dataclass(frozen=True)
class Loaded:
    """A system that was read from a file, and its version."""

    system: Any
    version: str


def load_version(path: Path, public_key: Path | None) -> Loaded:
    """Load a file; its version is the beginning of its SHA-256."""
    version = hashlib.sha256(read_capped(path, 2**30)).hexdigest()[:12]
    return Loaded(load(path, public_key=public_key), version)


class Gateway:
    """The model in force, and what outlives a reload: metrics, limits, providers, threads.

    Parameters
    ----------
    system : Loaded, fitted estimator or Chain
        What answers first.
    config : Config
        Settings.
    load : callable, optional
        Reads the file again.
    connect : callable, optional
        Makes the remote full model for a model; None makes the one of ``config.full``.
    sources : dict of str to RetryingSource, optional
        Sources of providers by name, in the place of those that ``config.providers`` describes: they are asked
        ``over`` the keys of each request.
    spending : Spending, optional
        What rows have paid, shared with other processes.
    """

    def __init__(
        self,
        system: Any,
        config: Config,
        *,
        load: Callable[[], Loaded] | None = None,
        connect: Callable[[Model], RemoteModel] | None = None,
        sources: Mapping[str, RetryingSource] | None = None,
        spending: Spending | None = None,
    ) -> None:
        self.config, self.metrics, self.limiter = config, Metrics(), Limiter(config)
        self.keys = Keys(config)
        self._registry = registry_of(self)
        self.is_ready = False
        self._load = load
        self.on_reload: Callable[[], None] = lambda: None
        self._connect = connect if connect is not None or config.full is None else self._remote_model
        self._budget = config.budget
        self._spending = Spending(config.budget_window) if spending is None else spending
        self._batch_thread = ThreadPoolExecutor(1, thread_name_prefix="thrifty-batch")
        self._full_thread = ThreadPoolExecutor(1, thread_name_prefix="thrifty-full")
        # A request waits for no other one's purchases; threads are started as they are needed.
        self._buyers = ThreadPoolExecutor(config.max_in_flight, thread_name_prefix="thrifty-buy")
        self.providers = tuple(
            Provider(name, settings, (sources or {}).get(name))
            for name, settings in config.provider_settings.items()
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changing = asyncio.Lock()
        self.model = self._model_of(system)
        self.model.remote = None if self._connect is None else self._connect(self.model)

    # -- from start to end -------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to answer requests."""
        self.in_background(self.limiter.run())
        if self.model.remote is not None:
            await self.model.remote.start()
        self.is_ready = True

    async def close(self) -> None:
        """Stop to answer requests, and close connections."""
        self.is_ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.model.remote is not None:
            await self.model.remote.close()
        for pool in (self._batch_thread, self._full_thread, self._buyers):
            pool.shutdown(wait=False, cancel_futures=True)

    def in_background(self, work: Any) -> None:
        """Run a coroutine that no request waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- changes -----------------------------------------------------------------------------------

    @property
    def budget(self) -> float | None:
        """Mean cost per row that is to be spent; None is the operating point of the file."""
        return self._budget

    async def prometheus(self) -> bytes:
        """Metrics as Prometheus reads them."""
        return generate_latest(self._registry)

    async def status(self) -> dict[str, Any]:
        """Contents of the status page."""
        return status_of(self)

    async def change_budget(self, budget: Any) -> None:
        """Hold another budget from now on; None goes back to the operating point of the file."""
        controller = None
        if budget is None and self.config.budget_cap is not None:
            raise InvalidInputError(
                f"the budget cannot be given up while budget_cap = {self.config.budget_cap!r} is to hold. Name another "
                f"budget, or start without the cap."
            )
        if budget is not None:
            budget = check_amount("budget", budget)
            controller = self.model.controller
            if controller is None:
                controller = self._controller(self.model.chain, budget)
            else:
                controller.target = budget
        self.model.controller, self._budget = controller, budget

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
                self.on_reload()
                # Not the thread that answers: requests go on meanwhile.
                model = await asyncio.to_thread(lambda: self._model_of(read()))
                await self._take_over_remote(model, self.model)
            except Exception as error:
                self.metrics.reloads["refused"] += 1
                LOG.warning("the file was not taken: %s", error)
                if isinstance(error, InvalidInputError):
                    raise
                raise InvalidInputError(f"the file was not taken: {error}") from error
            self.model = model
            self.metrics.reloads["done"] += 1
            return model.version

    async def _take_over_remote(self, model: Model, old: Model) -> None:
        """Give a new model the connection of the old one, or another if the full model reads other columns."""
        if (model.full_names, model.n_outputs) == (old.full_names, old.n_outputs) or self._connect is None:
            model.remote = old.remote
            return
        model.remote = self._connect(model)
        await model.remote.start()
        if old.remote is not None:
            self.in_background(self._close_later(old.remote))

    async def _close_later(self, remote: RemoteModel) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(self.config.drain)
        await remote.close()

    # -- making ------------------------------------------------------------------------------------

    def _model_of(self, given: Any) -> Model:
        loaded = given if isinstance(given, Loaded) else Loaded(given, "1")
        model = Model(
            loaded.system,
            version=loaded.version,
            config=self.config,
            batch_thread=self._batch_thread,
            full_thread=self._full_thread,
            buyers=self._buyers,
            limiter=self.limiter,
            providers=self.providers,
        )
        model.warm_up()
        spread = Spread.of_system(model.system)
        model.drift = None if spread is None else Drift(spread)
        if self._budget is not None:
            model.controller = self._controller(model.chain, self._budget)
        return model

    def _controller(self, chain: Chain, budget: float) -> BudgetController:
        return BudgetController(
            chain,
            target=budget,
            window=self.config.budget_window,
            cap=self.config.budget_cap,
            is_at_hand_free=bool(self.providers),
            spending=self._spending,
        )

    def _remote_model(self, model: Model) -> RemoteModel:
        return RemoteModel(
            str(self.config.full),
            columns=model.full_names,
            n_outputs=model.n_outputs,
            settings=self.config.remote_settings,
            api_key=self.config.remote_api_key,
        )
