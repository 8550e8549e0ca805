"""One row: which model to ask, what it answered, and when to stop."""

from typing import Any, Self

import numpy as np

from thrifty.engine.prices.billing import check_amount
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.logs import TOKEN_CHARACTERS
from thrifty.learners.routing.policy import Log, Step


class RouterSession:
    """Asks models about one row, as the policy decides, until it has an answer; made by ``ModelRouter.start``.

    Attributes
    ----------
    next_ask : str or None
        Model to ask now; None when the row is answered.
    answer, model : object, str
        The best answer at hand and the model that gave it; None before the first one.
    cost : float
        What was paid so far.
    """

    def __init__(self, router: Any, x: Any) -> None:
        self._router, self._x = router, x
        state = router._fitted()
        prior, expected, keys = router._before_asking([x] if isinstance(x, str) else np.asarray(x)[None])
        unknown = np.full_like(prior, np.nan)
        evidence = None if state.log.evidence is None else unknown.copy()
        answers = None if state.log.answers is None else np.full(prior.shape, -1)
        self._log = Log(prior, expected, unknown, unknown.copy(), answers, evidence)
        self._rule = router._rule_of(keys)
        self._given: list[tuple[int, Any, float]] = []
        self._failed: set[int] = set()
        self._is_substitute = False
        self._forms: list[Any] = []
        self.cost = 0.0
        self._decide()

    def _decide(self) -> None:
        state = self._router._fitted()
        family, place = self._rule
        asked = tuple(sorted(model for model, _, _ in self._given))
        if not self._is_substitute:
            self._step: Step = state.families[family].decide(place, asked, self._log)
        ask, pick = int(self._step.ask[0]), int(self._step.pick[0])
        if pick in self._failed:
            answered = [model for model in asked if model not in self._failed]
            pick = max(answered, key=lambda model: self._log.prior[0, model], default=-1)
            # The policy is at its end: the first answer of another model is taken.
            self._is_substitute = ask < 0 and pick < 0
            ask = self._substitute() if self._is_substitute else ask
        self.next_ask = None if ask < 0 else state.pool[ask]
        self.model = None if pick < 0 else state.pool[pick]
        self.answer = next((answer for model, answer, _ in self._given if model == pick), None)

    def _substitute(self) -> int:
        """Model to ask where all that the policy asked have failed: the best not dearer one, else the cheapest."""
        prior, cost = self._log.prior[0], self._log.expected[0]
        left = [model for model in range(len(prior)) if all(model != one for one, _, _ in self._given)]
        limit = max(cost[model] for model, _, _ in self._given)
        within = [model for model in left if cost[model] <= limit]
        if within:
            return max(within, key=lambda model: prior[model])
        return min(left, key=lambda model: cost[model], default=-1)

    def expected_cost(self, name: str) -> float:
        """What asking a model about this row is expected to cost; its mean where the policy never asks it."""
        state = self._router._fitted()
        if name in state.pool:
            return float(self._log.expected[0, state.pool.index(name)])
        return float(state.single_cost[state.names.index(name)])

    @property
    def takes_next(self) -> bool:
        """Whether the policy takes any answer of ``next_ask``."""
        family, place = self._rule
        asked = tuple(sorted(model for model, _, _ in self._given))
        return self._is_substitute or self._router._fitted().families[family].takes_next(place, asked)

    def propensity(self, name: str) -> float:
        """Probability of asking a model about this row, over the operating points that are mixed.

        A point that would first ask a model whose answer is not known counts as one that does not ask ``name``.
        """
        state, wanted, total = self._router._fitted(), self._router._fitted().pool.index(name), 0.0
        known = {model for model, _, _ in self._given} | {wanted}
        for weight, (family, place) in self._router._mixed_rules():
            asked: tuple[int, ...] = ()
            while wanted not in asked:
                ask = int(state.families[family].decide(place, asked, self._log).ask[0])
                if ask not in known:
                    break
                asked = tuple(sorted((*asked, ask)))
            total += weight * (wanted in asked)
        return total

    def fail(self, cost: float = 0.0) -> Self:
        """Tell that ``next_ask`` gave no answer, and what that cost; another model is asked in its place."""
        name = self.next_ask
        if name is not None:
            self._failed.add(self._router._fitted().pool.index(name))
        return self.give(None, cost=cost)

    def give(self, answer: Any, cost: float | None = None, evidence: float | None = None) -> Self:
        """Tell what ``next_ask`` answered.

        Parameters
        ----------
        answer : object
            Its answer; None where nothing could be parsed.
        cost : float, optional
            What was billed; unless given, by the price of the model, or what it was expected to cost.
        evidence : float, optional
            As in ``fit``.
        """
        if self.next_ask is None:
            raise InvalidInputError(
                f"the row is answered, by {self.model!r}; no further answer can be given."
            )
        state = self._router._fitted()
        model = state.pool.index(self.next_ask)
        paid = self._price(answer, model) if cost is None else check_amount("cost", cost)
        self._log.cost[0, model] = paid
        if self._log.answers is not None:
            form = None if self.next_ask in state.silent else self._router.normalise(answer)
            if form is not None and form not in self._forms:
                self._forms.append(form)
            self._log.answers[0, model] = -1 if form is None else self._forms.index(form)
        if self._log.evidence is not None:
            missing = evidence is None or not np.isfinite(evidence)
            self._log.evidence[0, model] = state.evidence_mean[model] if missing else evidence
        self._given.append((model, answer, paid))
        self.cost += paid
        self._decide()
        return self

    def _price(self, answer: Any, model: int) -> float:
        price = self._router._price_of(self._router._fitted().pool[model])
        if isinstance(price, float):
            return float(price)
        if isinstance(price, tuple) and isinstance(answer, str) and isinstance(self._x, str):
            tokens = len(self._x) / TOKEN_CHARACTERS, len(answer) / TOKEN_CHARACTERS
            return float(price[0] * tokens[0] + price[1] * tokens[1]) / 1e6
        return float(price(self._x)) if callable(price) else float(self._log.expected[0, model])

    def explain(self) -> str:
        """What was asked, paid and decided, a line for each model."""
        lines = []
        pool, codes = self._router._fitted().pool, self._log.answers
        for number, (model, _, paid) in enumerate(self._given):
            prior = np.clip(self._log.prior[0, model], 0.0, 1.0)
            words = f"asked {pool[model]} (paid {paid:.3g}), expected quality {prior:.3f}"
            before = [other for other, _, _ in self._given[:number]]
            if codes is not None and codes[0, model] < 0:
                words += "; its answer could not be parsed"
            elif codes is not None and before:
                same = [pool[other] for other in before if codes[0, other] == codes[0, model]]
                words += f"; agrees with {', '.join(same)}" if same else "; disagrees with the others"
            lines.append(words)
        if self.next_ask is not None:
            return "\n".join([*lines, f"next: ask {self.next_ask}"])
        value = np.clip(self._step.value[0], 0.0, 1.0)
        sure = "" if np.isnan(value) else f", expected quality {value:.3f}"
        return "\n".join([*lines, f"answered by {self.model} for {self.cost:.3g}{sure}"])
