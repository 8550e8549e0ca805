"""Session of a router: one row that asks one model after another."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from thrifty.arrays import Floats
from thrifty.engine.prices.billing import Resources, amount_text, check_amount
from thrifty.engine.prices.prices import ModelPrice, price_of_answer
from thrifty.engine.purchases.receipts import Purchase, decision_text
from thrifty.engine.walk.calibration import UNCOMPARED, UNPARSED, Calibration, class_probabilities
from thrifty.engine.walk.next_model import Capped, Log, Rules, Step, at_once, rest_of_round
from thrifty.engine.walk.policy import SLACK
from thrifty.engine.walk.session import Session
from thrifty.errors import InvalidInputError, MissingEvidenceWarning


@dataclass(frozen=True, eq=False)
class PricedModels:
    """Models that a row may ask, and the rules that decide which of them it asks.

    Attributes
    ----------
    names : tuple of str
        The models.
    prices : tuple of ModelPrice
        Their prices.
    mixed_rules : tuple of (float, Rules, int)
        Rules in force, the cheaper one first: the share of rows that follow them, their family, and the number therein.
    mean_cost : dict of str to float
        Mean cost of each model, also of those that are never asked.
    evidence_mean : ndarray of shape (n_models,)
        Imputed where evidence is missing and not calibrated.
    without_answers : frozenset of str
        Models whose answers are not compared.
    normalise : callable
        Canonical form in which answers are compared, None where nothing could be parsed.
    calibration : Calibration or None
        Maps from evidence to confidence, where the fit had evidence.
    calls : float
        What every row pays for calls about its batch, those of models that it does not ask among them.
    quality_name, unit : str
        What qualities and costs are called in explanations.
    resources : Resources or None
        Several resources that answers cost; single costs are then sums at their exchange rates.
    columns : tuple of str or None
        Names of the columns of rows, where they have any.
    """

    names: tuple[str, ...]
    prices: tuple[ModelPrice, ...]
    mixed_rules: tuple[tuple[float, Rules, int], ...]
    mean_cost: Mapping[str, float]
    evidence_mean: Floats
    without_answers: frozenset[str]
    normalise: Callable[[Any], Any]
    calibration: Calibration | None = None
    calls: float = 0.0
    quality_name: str = "quality"
    unit: str = ""
    resources: Resources | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ModelExplanation:
    """Explanation of one row of a router: a line for each model asked, the model that answers, and the cost.

    Attributes
    ----------
    lines : tuple of str
        Models asked in their order, whether their answers agree, and the decision.
    bought : tuple of str
        Models that were asked, in order.
    answer : str or None
        The model whose answer is taken; the first one to ask where the row has no answer yet.
    cost : float
        Cost of the row; its expected cost where no model was asked yet.
    costs : dict of str to float, optional
        The same in each of several resources.
    """

    lines: tuple[str, ...]
    bought: tuple[str, ...]
    answer: str | None
    cost: float
    costs: dict[str, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for a JSON file."""
        facts = {
            "steps": list(self.lines),
            "bought": list(self.bought),
            "answer": self.answer,
            "cost": self.cost,
        }
        return facts if self.costs is None else {**facts, "costs": self.costs}

    def __str__(self) -> str:
        return "\n".join(self.lines)


class ModelSession(Session):
    """Asks models about one row, as the policy decides, until it has an answer; made by ``ModelRouter.start``.

    Parameters
    ----------
    models : PricedModels
        Models and rules.
    x : object
        The row.
    log : Log
        A log of this row alone, in which nothing but expectations is known; the session fills it.
    follows : int
        Which of the rules in force the row follows, by its number among them.

    Attributes
    ----------
    next_purchase : Purchase or None
        The answer to buy now: the name of the model, and its expected cost; None when the row is answered.
    answer, model : object, str
        The best answer at hand and the model that gave it; None before the first one.
    cost : float
        Cost of the answers so far.
    costs : dict of str to float, optional
        The same in each of several resources; ``cost`` is then their sum at the exchange rates of the fit.
    value : float
        Expected quality of the answer at hand; NaN where the rule has no estimate.
    asked, failed : tuple of str
        Models that were asked, in order, and those of them that gave no answer.
    evidence_of : callable or None
        ``(name, answer) -> evidence``, where answers themselves say how sure they are.
    combine : callable or None
        ``(answers by name, model) -> answer``, where the answers at hand are combined.
    """

    origin: Any = None
    """What the session was started with, for ``saved``."""

    evidence_of: Callable[[str, Any], Any] | None = None
    combine: Callable[[Mapping[str, Any], str], Any] | None = None

    def __init__(self, models: PricedModels, x: Any, log: Log, *, follows: int) -> None:
        self._models, self._x, self._log, self._number = models, x, log, follows
        _, self._rules, self._place = models.mixed_rules[follows]
        self._n_models = log.n_models
        if log.cells is not None and log.columns is not None:  # those that cost are bought first
            is_free = np.isin(np.arange(log.cells.shape[1]), log.columns.free)
            cells = np.where(is_free, log.cells, np.nan)
            self._log = replace(log, cells=cells)
        self._returned: list[tuple[int, Any, float]] = []
        self._steps: list[dict[str, Any]] = []
        self._failed: set[int] = set()
        self._compared: dict[int, str] = {}
        self._is_substitute = False
        self._forms: list[Any] = []
        self._longest = np.zeros(0 if log.delays is None else len(log.delays))
        self.cost = models.calls
        resources = models.resources
        self.costs = None if resources is None else dict.fromkeys(resources.names, 0.0)
        self._decide()

    @property
    def _asked(self) -> tuple[int, ...]:
        return tuple(sorted(model for model, _, _ in self._returned))

    def _decide(self) -> None:
        self._purchase: Purchase | None = None
        self._log = self._log.knowing(self._asked)
        if not self._is_substitute:
            self._step: Step = self._rules.decide(self._place, self._asked, self._log)
            if self._step.bar is not None and self._returned:
                value, bar = self._step.value[0], self._step.bar[0]
                words = (
                    f"sure enough: {value:.3f} above"
                    if value > bar
                    else f"not sure enough: {value:.3f}, needs"
                )
                self._compared[self._returned[-1][0]] = f"{words} {bar:.3f}"
        ask, best = int(self._step.ask[0]), int(self._step.answer[0])
        solved = [] if self._log.cutoff is None else [one for one in self._asked if one not in self._failed]
        solved = [one for one in solved if not self._columns_of(one)]
        if solved:
            ask, best = -1, solved[0]
        elif self._log.cutoff is not None and ask >= 0:
            best = -1  # runs that have not solved the row are no answers
        elif best in self._failed:
            answered = [
                model for model in self._asked if model not in self._failed and model < self._n_models
            ]
            best = max(answered, key=lambda model: self._log.prior[0, model], default=-1)
            # The policy is at its end: the first answer of another model is taken.
            self._is_substitute = ask < 0 and best < 0
            ask = self._substitute() if self._is_substitute else ask
        if best < 0 and self._log.cutoff is not None and self.cost >= self._log.cutoff:
            ask = -1  # no time is left
        names = self._models.names
        self._next: int | None = None if ask < 0 else ask
        self.model = None if best < 0 else names[best]

    def _substitute(self) -> int:
        """Model to ask where all that the policy asked have failed: the best not dearer one, else the cheapest."""
        prior, cost = self._log.prior[0], self._log.expected[0]
        asked = [model for model in self._asked if model < self._n_models]
        left = [model for model in range(len(prior)) if model not in asked]
        if isinstance(self._rules, Capped):
            room = self._rules.limits * (1 + SLACK) - self._paid_so_far
            left = [model for model in left if np.all(self._rules.prices[model] <= room)]
        limit = np.inf if self._log.cutoff is not None else max(cost[model] for model in asked)
        within = [model for model in left if cost[model] <= limit]
        if within:
            return max(within, key=lambda model: prior[model])
        return min(left, key=lambda model: cost[model], default=-1)

    @property
    def next_purchase(self) -> Purchase | None:  # type: ignore[override]  # read only
        """The answer to buy now; None when the row is answered."""
        if self._next is None:
            return None
        at_hand = "no answer yet" if self.model is None else f"the answer of {self.model} is not sure enough"
        if self._purchase is None:
            why = self._mix_text() or at_hand
            name, price = self._models.names[self._next], self._expected(self._next)
            early = self._early_run(self._next)
            resources, expected = self._models.resources, self._log.expected_costs
            by_resource = None
            if resources is not None and expected is not None:
                by_resource = resources.named(expected[0, self._next])
            limit = None
            if early is not None:
                name, limit = self._models.names[early[0]], early[1]
            elif self._log.cutoff is not None and self._next < self._n_models:
                share = 1.0 if self._is_substitute else self._step.share
                limit = share * max(self._log.cutoff - self.cost, 0.0)
            together = tuple(self._models.names[model] for model in self._round())
            self._purchase = Purchase(
                name, price, self._columns_of(self._next), why, by_resource, together, limit
            )
        return self._purchase

    def _waits_with_others(self) -> bool:
        """True if the next model is asked at the same time as those before."""
        return not self._is_substitute and 0 < len(self._asked) < at_once(self._rules, self._place)

    def _round(self) -> list[int]:
        """Models of the round that the next one belongs to, from it on; empty where it is alone."""
        number = at_once(self._rules, self._place)
        if number < 2 or len(self._asked) >= number or self._is_substitute or self._next is None:
            return []
        asked = (*self._asked, self._next)
        return [self._next, *rest_of_round(self._rules, self._place, asked, self._log)]

    @property
    def _paid_so_far(self) -> Floats:
        """What the row has paid in each resource."""
        return np.array([self.cost]) if self.costs is None else np.array([*self.costs.values()])

    @property
    def answer(self) -> Any:
        """The best answer at hand, combined with the others where ``combine`` does so; None before the first one."""
        answers = {self._models.names[model]: answer for model, answer, _ in self._returned}
        answer = None if self.model is None else answers.get(self.model)
        if answer is None or self.model is None or self.combine is None:
            return answer
        return self.combine(answers, self.model)

    @property
    def next_ask(self) -> str | None:
        """Former name of ``next_purchase.name``."""
        warnings.warn(
            "next_ask is next_purchase.name now, and next_purchase is None when the row is answered; next_ask goes "
            "with the next release.",
            FutureWarning,
            stacklevel=2,
        )
        return None if self._next is None else self._models.names[self._next]

    @property
    def value(self) -> float:
        """Expected quality of the answer at hand; NaN where the rule has no estimate."""
        return float(self._step.value[0])

    def _columns_of(self, purchase: int) -> tuple[Any, ...]:
        """Columns that a purchase brings, by their names or numbers; none of an answer."""
        if purchase < self._n_models:
            return ()
        assert self._log.columns is not None
        columns = self._log.columns.groups[purchase - self._n_models].tolist()
        names = self._models.columns
        return tuple(columns if names is None else [names[column] for column in columns])

    def _early_run(self, purchase: int) -> tuple[int, float] | None:
        """Model and seconds of a purchase that is an early run."""
        columns = self._log.columns
        if columns is None or purchase < self._n_models + columns.n_delivering:
            return None
        return columns.runs[purchase - self._n_models - columns.n_delivering]

    @property
    def asked(self) -> tuple[str, ...]:
        """Models that were asked, and groups of columns that were bought, in order."""
        return tuple(self._models.names[model] for model, _, _ in self._returned)

    @property
    def failed(self) -> tuple[str, ...]:
        """Models that gave no answer."""
        return tuple(self._models.names[model] for model in sorted(self._failed))

    def _expected(self, model: int) -> float:
        """Expected cost of a model after those asked so far."""
        return float(self._log.expected[0, model]) * self._log.share_after(model, self._asked)

    def expected_cost(self, name: str) -> float:
        """Expected cost of asking a model about this row; its mean where the policy never asks it."""
        names = self._models.names
        return self._expected(names.index(name)) if name in names else self._models.mean_cost[name]

    @property
    def takes_next(self) -> bool:
        """True if any answer of ``next_purchase`` is taken."""
        return self._is_substitute or self._rules.takes_next(self._place, self._asked)

    def propensity(self, name: Any) -> float:
        """Probability of asking a model about this row, over the operating points that are mixed.

        A point that would first ask a model whose answer is not known counts as one that does not ask ``name``.
        """
        wanted = self._models.names.index(name)
        return sum(
            weight * (wanted in self._asked_by(rules, place))
            for weight, rules, place in self._models.mixed_rules
        )

    def _asked_by(self, rules: Rules, place: int) -> tuple[int, ...]:
        """Models that a rule asks, as far as answers are known, then the next one, or -1 where it stops."""
        asked: tuple[int, ...] = ()
        while True:
            ask = int(rules.decide(place, tuple(sorted(asked)), self._log).ask[0])
            asked = (*asked, ask)
            if ask not in self._asked:
                return asked

    def _mix_text(self) -> str:
        """The point that decided, where two are mixed which ask different models next; else empty."""
        mixed = self._models.mixed_rules
        if self._is_substitute or not 0.0 < mixed[0][0] < 1.0:
            return ""
        others = [rules for number, rules in enumerate(mixed) if number != self._number]
        asked = {self._asked_by(rules, place)[-1] for _, rules, place in others}
        if asked == {-1 if self._next is None else self._next}:
            return ""
        return decision_text(np.nan, goes_on=True, point="dearer" if self._number else "cheaper")

    def fail(self, cost: Any = 0.0) -> Self:
        """Report that the model gave no answer, and what that cost; another one is asked instead."""
        if self._next is not None:
            self._failed.add(self._next)
        return self.give(None, cost=cost)

    def _paid_in(self, model: int, cost: Any) -> tuple[float, dict[str, float]]:
        """Cost of an answer in several resources: their sum, and that in each."""
        resources, log = self._models.resources, self._log
        assert resources is not None  # asked for only where there are several
        assert log.expected_costs is not None
        assert log.costs is not None
        if cost is None:
            price = self._models.prices[model]
            cost = price if isinstance(price, dict) else None
        paid = log.expected_costs[0, model]
        if isinstance(cost, Mapping):
            paid = resources.limits(resources.check_budget("cost", cost), 0.0)
        elif cost == 0.0:  # of a model that failed
            paid = np.zeros(len(resources.names))
        elif cost is not None:
            resources.check_budget("cost", cost)  # refuses a single number
        log.costs[0, model] = paid
        return float((paid * resources.rates).sum()), resources.named(paid)

    def give(self, answer: Any, cost: Any = None, evidence: Any = None) -> Self:
        """Give the answer of the model, or the values of the columns, that ``next_purchase`` names.

        Parameters
        ----------
        answer : object
            Its answer; None where nothing could be parsed. Of columns their values, in their order or by name.
        cost : float, or dict of resource to float, optional
            Billed amount; by default that of the price of the model, or the expected cost.
        evidence : float or array-like of shape (n_classes,), optional
            As in ``fit``: a number, or class probabilities.
        """
        if self._next is None:
            raise InvalidInputError(
                f"the row is answered, by {self.model!r}; no further answer can be given."
            )
        models, model = self._models, self._next
        paid, share = self._expected(model), self._log.share_after(model, self._asked)
        brings = self._columns_of(model)
        if models.resources is not None:
            paid, by_resource = self._paid_in(model, cost)
            if (delays := self._log.delays) is not None:
                # Models that are asked at once wait as long as the slowest one.
                billed = np.array([*by_resource.values()])
                before = self._longest * self._waits_with_others()
                self._longest, waits = np.maximum(billed[delays], before), billed.copy()
                waits[delays] = self._longest - before
                paid = float(waits @ models.resources.rates)
                by_resource = models.resources.named(waits)
            self.costs = {name: amount + by_resource[name] for name, amount in (self.costs or {}).items()}
        elif cost is None and model < self._n_models:
            price: Any = price_of_answer(models.prices[model], self._x, answer)
            paid = paid if price is None else price * share
        elif cost is not None:
            paid = check_amount("cost", cost)
        self._log.cost[0, model] = paid / share if share > 0.0 else self._log.expected[0, model]
        is_failed = model in self._failed
        step = {"name": models.names[model], "answer": answer, "cost": cost, "evidence": evidence}
        if brings:
            self._write_cells(model, None if is_failed else answer, brings)
            self._steps.append({**step, "failed": is_failed})
            self._returned.append((model, answer, paid))
            self.cost += paid
            self._decide()
            return self
        if evidence is None and answer is not None and self.evidence_of is not None:
            evidence = self.evidence_of(models.names[model], answer)
        if self._log.answers is not None:
            by_evidence = self.evidence_of is not None  # which has the class of the answer
            self._log.answers[0, model] = UNPARSED if by_evidence else self._code(model, answer)
        if self._log.evidence is not None:
            is_without = models.names[model] in models.without_answers
            if evidence is None and not is_failed and not is_without and models.calibration is not None:
                way_out = "Give evidence=, as in fit" if self.evidence_of is None else "Give what it predicts"
                warnings.warn(
                    f"{models.names[model]!r} answered without evidence, and the router was fitted with it: its answer "
                    f"counts as right as often as on average. {way_out}, or call fail().",
                    MissingEvidenceWarning,
                    stacklevel=2,
                )
            self._read_evidence(model, None if is_failed else evidence, is_failed=is_failed)
        self._steps.append({**step, "failed": is_failed})
        self._returned.append((model, answer, paid))
        self.cost += paid
        self._decide()
        return self

    def saved(self) -> dict[str, Any]:
        """The session so far as plain data, for a file: ``resume`` of the router goes on with it, also tomorrow."""
        if self.origin is None:
            raise InvalidInputError("a session is saved where start has made it; those of a batch are not.")
        steps = [{name: _plain(value) for name, value in step.items()} for step in self._steps]
        return {"start": _plain(self.origin), "follows": self._number, "steps": steps}

    def resumed(self, saved: Mapping[str, Any]) -> Self:
        """Give a new session what a saved one was given."""
        self._number = int(saved["follows"])
        if not 0 <= self._number < len(self._models.mixed_rules):
            raise InvalidInputError(f"the session follows point {self._number}, which is not in force.")
        _, self._rules, self._place = self._models.mixed_rules[self._number]
        self._decide()
        for step in saved["steps"]:
            if self._next is None or self._models.names[self._next] != step["name"]:
                raise InvalidInputError(
                    f"the session was given {step['name']!r}, which this router does not ask there. Resume it with the "
                    f"router, and at the budget, that it was saved with."
                )
            if step["failed"]:
                self.fail(0.0 if step["cost"] is None else step["cost"])
            else:
                self.give(step["answer"], step["cost"], step["evidence"])
        return self

    def _write_cells(self, purchase: int, values: Any, names: tuple[Any, ...]) -> None:
        """Write values of columns into the log; those of a purchase that failed stay unknown."""
        assert self._log.cells is not None
        assert self._log.columns is not None
        if values is None:
            return
        if isinstance(values, Mapping):
            lacking = [name for name in names if name not in values]
            if lacking:
                raise InvalidInputError(
                    f"values must have {lacking[0]!r}, a column of {self._models.names[purchase]!r}."
                )
            values = [values[name] for name in names]
        cells = np.asarray(values, dtype=np.float64).reshape(-1)
        if len(cells) != len(names):
            raise InvalidInputError(
                f"{self._models.names[purchase]!r} has {len(names)} columns, {', '.join(map(str, names))}; got "
                f"{len(cells)} values."
            )
        self._log.cells[0, self._log.columns.groups[purchase - self._n_models]] = cells

    def _code(self, model: int, answer: Any) -> int:
        """Number of an answer, equal where answers are."""
        models = self._models
        if models.names[model] in models.without_answers:
            return UNPARSED if models.calibration is None else UNCOMPARED
        form = models.normalise(answer)
        if form is None:
            return UNPARSED
        if form not in self._forms:
            self._forms.append(form)
        return self._forms.index(form)

    def _read_evidence(self, model: int, evidence: Any, *, is_failed: bool) -> None:
        """Write the confidence of an answer, and with class probabilities its class, into the log."""
        log, calibration = self._log, self._models.calibration
        assert log.evidence is not None
        if calibration is None:
            missing = evidence is None or not np.isfinite(evidence)
            log.evidence[0, model] = self._models.evidence_mean[model] if missing else evidence
        elif log.classes is None or log.answers is None:
            value = np.nan if evidence is None else float(evidence)
            log.evidence[0, model] = 0.0 if is_failed else calibration.of_numbers(model, np.array([value]))[0]
        else:
            chance = np.full(calibration.n_classes, np.nan)
            if evidence is not None:
                chance = class_probabilities(evidence)
            if chance.shape != (calibration.n_classes,):
                raise InvalidInputError(
                    f"evidence of {self._models.names[model]} must be a probability of each of {calibration.n_classes} "
                    f"classes, as in fit; got shape {chance.shape}."
                )
            confidence, classes, code = calibration.of_classes(model, chance[None])
            log.evidence[0, model], log.classes[0, model] = confidence[0], classes[0]
            # An answer that is not given is the class of the largest probability.
            log.answers[0, model] = UNPARSED if is_failed else code[0]

    def explanation(self, quality: float | None = None) -> ModelExplanation:
        """Explanation of the row so far, with the quality of its answer where that is known."""
        wanted, text = self.next_purchase, self.explain()
        text += "" if quality is None else f"; its {self._models.quality_name} was {quality:.3g}"
        answer = self.model if wanted is None else wanted.name
        return ModelExplanation(tuple(text.split("\n")), self.asked, answer, self.cost, self.costs)

    def _lines(self) -> list[str]:
        names, codes, lines = self._models.names, self._log.answers, []
        for number, (model, _, paid) in enumerate(self._returned):
            failed = "; it failed" if model in self._failed else ""
            if self._log.cutoff is not None and not self._columns_of(model):
                ended = "it did not solve the row, and is skipped" if failed else "solved"
                lines.append(f"ran {names[model]} (took {paid:.3g} seconds): {ended}")
                continue
            if model >= self._n_models:
                lines.append(f"bought {names[model]} (paid {paid:.3g}{self._models.unit}){failed}")
                continue
            prior = np.clip(self._log.prior[0, model], 0.0, 1.0)
            words = f"asked {names[model]} (paid {self._in_words(paid, model)}), expected "
            words += f"{self._models.quality_name} {prior:.3f}"
            words += f"; {self._compared[model]}" if model in self._compared else ""
            before = [other for other, _, _ in self._returned[:number] if other < self._n_models]
            if codes is not None and codes[0, model] == UNPARSED:
                words += "; its answer could not be parsed"
            elif codes is not None and before and codes[0, model] != UNCOMPARED:
                same = [names[other] for other in before if codes[0, other] == codes[0, model]]
                words += f"; agrees with {', '.join(same)}" if same else "; disagrees with the others"
            lines.append(words)
        return lines

    @property
    def _paid(self) -> str:
        return amount_text(self.cost if self.costs is None else self.costs, digits=6)

    def _in_words(self, paid: float, model: int | None = None) -> str:
        """What was paid for a model, or for all of them."""
        resources, costs = self._models.resources, self._log.costs
        if resources is None or costs is None or self.costs is None:
            return f"{paid:.3g}{self._models.unit}"
        return amount_text(self.costs if model is None else resources.named(costs[0, model]), digits=3)

    def _answered(self) -> str:
        return "" if self.model is None else f"by {self.model}"

    def _last_line(self) -> str:
        value = np.clip(self.value, 0.0, 1.0)
        models, reason = self._models, self._mix_text()
        calls = f", {models.calls:.3g} of it for calls about its batch" if models.calls else ""
        sure = "" if np.isnan(value) else f", expected {models.quality_name} {value:.3f}"
        reason = f"; {reason}" if reason else ""
        return f"answered by {self.model} for {self._in_words(self.cost)}{calls}{sure}{reason}"


def _plain(value: Any) -> Any:
    """Arrays as lists, numbers of numpy as those of Python."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value
