"""What serves now, and how another file or another budget takes its place without a request noticing.

A request looks up the model once, when it starts. The old model goes on serving until the new one is whole; a file that
cannot be read, or that cannot hold the budget, changes nothing.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from thrifty.chain.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.prices.billing import check_amount
from thrifty.serve.answering import Model
from thrifty.serve.buying import providers_of
from thrifty.serve.config import Config, meant
from thrifty.serve.controller import BudgetController
from thrifty.serve.metrics import LOG, Drift, Load, Tally
from thrifty.serve.remote import RemoteModel, RemoteSettings
from thrifty.tables.system import TableSystem, as_table_system

__all__ = ["Loaded", "Serving"]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A system that was read from a file, and what tells it from others of the same name."""

    system: TableSystem
    version: str


class Serving:
    """What serves now.

    Parameters
    ----------
    system : Loaded, TableSystem or fitted estimator
        What answers first.
    config : Config
        Settings.
    load : callable, optional
        Reads the file again.
    connect : callable, optional
        Makes the remote full model for a model; None makes the one of ``config.full``.
    sources : dict of str to callable, optional
        By the name of a provider: makes its source from keys, ``timeout``, ``retries``, ``deadline`` and ``cache``;
        None makes those that ``config.providers`` describes.
    hold : callable, optional
        Makes what holds a budget from a chain and the budget; None makes a ``BudgetController``.
    """

    def __init__(
        self,
        system: Any,
        config: Config,
        *,
        load: Callable[[], Loaded] | None = None,
        connect: Callable[[Model], RemoteModel] | None = None,
        sources: Mapping[str, Any] | None = None,
        hold: Callable[[Chain, float], BudgetController] | None = None,
    ) -> None:
        self.config = config
        self.tally = Tally()
        self.load = Load(config)
        self.is_ready = False
        self._load = load
        self._connect = connect if connect is not None or config.full is None else self._connected
        self._hold = hold or self._held
        self._budget = config.budget
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="thrifty-serve")
        # A request waits for no other one's purchases; threads are started as they are needed.
        self._buyers = ThreadPoolExecutor(config.max_in_flight, thread_name_prefix="thrifty-buy")
        self.providers = providers_of(config.providers, sources)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changing = asyncio.Lock()
        self.model = self._made(system)
        self.model.remote = None if self._connect is None else self._connect(self.model)

    # -- from start to end -------------------------------------------------------------------------

    async def start(self) -> None:
        """Be ready to answer."""
        self.in_background(self.load.run())
        if self.model.remote is not None:
            await self.model.remote.start()
        self.is_ready = True

    async def close(self) -> None:
        """Answer no more."""
        self.is_ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.model.remote is not None:
            await self.model.remote.close()
        for pool in (self._worker, self._buyers):
            pool.shutdown(wait=False, cancel_futures=True)

    def in_background(self, work: Any) -> None:
        """Run something that no request waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- changes -----------------------------------------------------------------------------------

    @property
    def budget(self) -> float | None:
        """Mean cost per row that is to be spent; None is the operating point of the file."""
        return self._budget

    def change_budget(self, budget: Any) -> None:
        """Hold another budget from now on; None goes back to the operating point of the file."""
        controller = None
        if budget is not None:
            amount = check_amount("budget", budget)
            controller = self.model.controller
            if controller is None:
                controller = self._hold(self.model.chain, amount)
            else:
                controller.target = amount
            budget = amount
        self.model.controller, self._budget = controller, budget

    async def reload(self) -> str:
        """Read the file again and serve what it holds; returns its version."""
        if self._load is None:
            raise InvalidInputError(
                "what is served was not read from a file, so there is none to read again."
            )
        async with self._changing:
            try:
                # Not the thread that answers: requests go on meanwhile.
                model = await asyncio.to_thread(self._made_again, self._load)
                old = self.model
                await self._take_over_remote(model, old)
            except Exception as error:
                self.tally.reloads["refused"] += 1
                LOG.warning("the file was not taken: %s", error)
                if isinstance(error, InvalidInputError):
                    raise
                raise InvalidInputError(f"the file was not taken: {error}") from error
            self.model = model
            self.tally.reloads["done"] += 1
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

    def _made_again(self, load: Callable[[], Loaded]) -> Model:
        return self._made(load())

    # -- making ------------------------------------------------------------------------------------

    def _made(self, given: Any) -> Model:
        loaded = given if isinstance(given, Loaded) else Loaded(given, "1")
        system = loaded.system
        model = Model(
            system if isinstance(system, TableSystem) else as_table_system(system),
            version=loaded.version,
            config=self.config,
            worker=self._worker,
            buyers=self._buyers,
            providers=self.providers,
            waiting=self.load.waiting,
        )
        model.warm_up()
        spread = model.system.spread
        model.drift = None if spread is None else Drift(spread)
        if self._budget is not None:
            model.controller = self._hold(model.chain, self._budget)
        return model

    def _held(self, chain: Chain, budget: float) -> BudgetController:
        return BudgetController(
            chain,
            target=budget,
            window=self.config.budget_window,
            cap=self.config.budget_cap,
            is_at_hand_free=bool(self.providers),
        )

    def _connected(self, model: Model) -> RemoteModel:
        known = {one.name for one in dataclasses.fields(RemoteSettings)}
        for name in self.config.remote:
            if name not in known:
                raise InvalidInputError(f"[remote] sets {name!r}, which is no setting.{meant(name, known)}")
        return RemoteModel(
            str(self.config.full),
            columns=model.full_names,
            n_outputs=model.n_outputs,
            settings=RemoteSettings(**self.config.remote),
            api_key=self.config.remote_api_key,
        )
