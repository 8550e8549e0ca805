"""Every word of a page, and how its numbers are written; the script of the page shows what it is given here.

Labels are right or wrong, or cost money; numbers have an R2 and errors in a unit.
"""

import math
from collections.abc import Iterator
from typing import Any

from thrifty.reporting.facts import Facts, MeasureCurve

__all__ = [
    "article",
    "at_point",
    "constant_text",
    "cost_digits",
    "error_digits",
    "error_text",
    "fixed",
    "groups_in_words",
    "lead_of_bill",
    "measure_text",
    "money",
    "parts_of",
    "percent",
    "percent_digits",
    "plain_number",
    "reaches",
    "score_text",
    "tiles_at",
    "words_of",
]

_LABELS = {
    "picture": "Right answers for the money",
    "score": "Answers right",
    "groups": "Recall, and who needs the full model",
    "vertical": "Share of right answers",
    "constant": "majority class",
    "certified": "how often a new row is answered wrongly where the full model is right",
    "cost": "Mean cost per row",
    "across": "mean cost per row",
}
_BILL = {
    "picture": "What tests and mistakes cost",
    "score": "Mistakes per row",
    "vertical": "Mean cost of mistakes per row",
    "constant": "best constant answer",
    "certified": "how often the answer to a new row costs more than that of the full model",
    "cost": "Tests per row",
    "across": "mean cost of tests per row",
}


def words_of(facts: Facts) -> dict[str, str]:
    """Titles and names on the page."""
    if facts.bill is not None:
        return _LABELS | _BILL
    if not facts.is_number:
        return _LABELS
    is_ranking = facts.measured.n_queries is not None
    return _LABELS | {
        "picture": f"{facts.score} for the money",
        "score": facts.score,
        "groups": "Errors, and who needs the full model",
        "vertical": facts.score,
        "constant": "random order" if is_ranking else "constant",
        "certified": "how often the order of a new query is worse than by the full model, by more than the tolerance "
        "of the fit"
        if is_ranking
        else "how often the error of a new row is larger than that of the full model, by more than the "
        "tolerance of the fit",
    }


def fixed(value: float, digits: int) -> str:
    """A number with so many decimals, rounded as the script of the page rounds it: the two speak of the same numbers.

    Python and browsers part where a number lies in the middle: 80.05 is 80.0 here and 80.1 there. A billionth more
    leaves no middle. Seven digits are what the script is given.
    """
    return f"{float(f'{value:.7g}') * (1 + 1e-9):,.{digits}f}"


def percent_digits(facts: Facts) -> int:
    """Decimals of percentages of right answers: what the number of rows can tell apart."""
    return 1 if facts.measured.n_rows < 20_000 else 2


def error_digits(facts: Facts) -> int:
    """Decimals of errors: about three digits of the largest."""
    largest = max((one.constant for one in facts.errors), default=0.0)
    return min(8, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 2


def score_text(facts: Facts, score: float) -> str:
    """A share of right answers in per cent, an R2 as it is, or what mistakes cost."""
    digits = percent_digits(facts)
    if facts.bill is not None:
        return plain_number(facts, score)
    if facts.is_number:
        return fixed(score, digits + 2)
    return f"{fixed(100 * score, digits)}\N{NO-BREAK SPACE}%"


def measure_text(facts: Facts, name: str, value: float) -> str:
    """A measure: accuracies in per cent, all others as they are."""
    digits = percent_digits(facts)
    if "accuracy" in name:
        return f"{fixed(100 * value, digits)}\N{NO-BREAK SPACE}%"
    return fixed(value, digits + 2)


def error_text(facts: Facts, error: float) -> str:
    """A mean error in the unit of the target."""
    return fixed(error, error_digits(facts))


def reaches(facts: Facts, score: float) -> str:
    """What a model does, as the end of a sentence about it."""
    told = score_text(facts, score)
    if facts.bill is not None:
        return f"makes mistakes for {money(facts, score)} per row"
    return (
        f"has {article(facts)} {facts.score} of {told}" if facts.is_number else f"is right on {told} of rows"
    )


def article(facts: Facts) -> str:
    """The article of the name of the score."""
    return "a" if facts.score.startswith("D") else "an"


def parts_of(facts: Facts, tests: float, mistakes: float) -> str:
    """A total and its two parts, where mistakes have prices."""
    total = money(facts, tests + mistakes)
    return f"{total} per row, {plain_number(facts, tests)} for tests and {plain_number(facts, mistakes)} for mistakes"


def lead_of_bill(facts: Facts) -> str:
    """The first lines of a page where mistakes have prices."""
    full, least = facts.full, facts.bill.least if facts.bill else 0
    words = []
    if full is not None:
        named = f", {facts.full_name}," if facts.full_name else ""
        told = parts_of(facts, full.cost, full.accuracy)
        words.append(f"Asked about every row, the full model (f0){named} costs {told}.")
    told = parts_of(facts, facts.points.cost[least], facts.points.accuracy[least])
    words.append(
        f"{facts.method} answers easy rows from few features and buys more only for the others. Its point of least "
        f"total cost costs {told}."
    )
    words.append(
        f"Always answering with {facts.majority.label}, without any test, would cost "
        f"{money(facts, facts.majority.accuracy)} per row in mistakes."
    )
    return " ".join(words)


def cost_digits(facts: Facts) -> int:
    """Decimals of prices: about three digits of the largest."""
    largest = max(*facts.points.cost, facts.points.cost[0], facts.full.cost if facts.full else 0.0)
    if facts.bill is not None:
        largest = max(largest, *facts.bill.high)
    if largest >= 1 or largest <= 0:
        return 2 if largest < 100 else 1 if largest < 1000 else 0
    return min(8, 2 - math.floor(math.log10(largest)))


def plain_number(facts: Facts, value: float) -> str:
    """An amount of money without its unit."""
    return fixed(value, cost_digits(facts))


def money(facts: Facts, value: float) -> str:
    """An amount of money with its unit, if there is one."""
    return plain_number(facts, value) + (f"\N{NO-BREAK SPACE}{facts.unit}" if facts.unit else "")


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent."""
    return f"{fixed(100 * share, digits)}\N{NO-BREAK SPACE}%"


def portion(share: float) -> str:
    """A share of rows in whole per cent: a few of many are not none, and almost all are not all."""
    if 0 < share < 0.005:
        return "<\N{NO-BREAK SPACE}1\N{NO-BREAK SPACE}%"
    return ">\N{NO-BREAK SPACE}99\N{NO-BREAK SPACE}%" if 0.995 < share < 1 else percent(share)


def constant_text(facts: Facts) -> str:
    """The best answer that is the same for every row, and its score."""
    return f"{words_of(facts)['constant']}: {_score(facts, facts.majority.accuracy)}"


# -- one operating point -------------------------------------------------------------------------


def at_point(facts: Facts, place: int) -> dict[str, Any]:
    """What the script shows of a point: texts of the tiles, what is bought, and the point in a sentence."""
    points, full = facts.points, facts.full
    cost, score = money(facts, points.cost[place]), _score(facts, points.accuracy[place])
    ends = f"{_score(facts, points.low[place])} to {_score(facts, points.high[place])}"
    if facts.bill is not None:
        mistakes = money(facts, points.accuracy[place])
        spoken = f" per row for tests, {mistakes} for mistakes"
        told = (
            f"tests cost {cost} and mistakes {mistakes} ({ends}), together {money(facts, facts.total(place))}"
        )
    else:
        spoken = f" per row: {facts.score} {score}" if facts.is_number else f" per row: {score} right"
        told = f"{facts.score} is {score}" if facts.is_number else f"{score} of answers are right"
        told = f"{told} ({ends}) at a mean cost of {cost}"
    own, whole = _costs(facts, place)
    if full is not None and whole > 0:
        told += f", {percent(1 - own / whole)} less than the full model for every row"
    return {
        "tiles": [texts for _, _, texts in tiles_at(facts, place)],
        "bought": _bought(facts, place),
        "spoken": spoken,
        "summary": f" per row, {told}; {portion(points.share(place))} of rows go to the full model.",
    }


def tiles_at(facts: Facts, place: int) -> Iterator[tuple[str, str, list[str]]]:
    """Tiles beside the slider: identifier, heading, and the texts at a point, of which the first is the number."""
    score, saving = ("accuracy", *_score_tile(facts, place)), ("saving", *_saving_tile(facts, place))
    planned = [f"planned: {money(facts, facts.points.budget[place])}"] if facts.measured.held_out else []
    cost = ("cost", words_of(facts)["cost"], [money(facts, facts.points.cost[place]), *planned])
    measures = _measure_tiles(facts, place)
    if facts.bill is not None:
        ends = (plain_number(facts, values[place]) for values in (facts.bill.low, facts.bill.high))
        yield "total", "Tests and mistakes per row", [money(facts, facts.total(place)), " to ".join(ends)]
        yield from (saving, score, cost, *measures)
    else:
        yield from (score, cost, *measures[:1], saving, *measures[1:])
    yield "sent", "Full model asked for", [portion(facts.points.share(place)), "of rows"]
    yield from _class_tiles(facts, place)


def _score_tile(facts: Facts, place: int) -> tuple[str, list[str]]:
    points, full = facts.points, facts.full
    ends = f"{_score(facts, points.low[place])} to {_score(facts, points.high[place])}"
    told = [_score(facts, points.accuracy[place]), ends]
    if full is not None and points.lead_low:
        low, high = (_signed(facts, values[place]) for values in (points.lead_low, points.lead_high))
        lead = _signed(facts, points.accuracy[place] - full.accuracy) + _POINTS[facts.is_right_or_wrong]
        told.append(f"{lead} against the full model ({low} to {high})")
    label = f" ({facts.majority.label})" if facts.is_number else ""
    told.append(constant_text(facts).replace(":", f"{label}:", 1))
    return words_of(facts)["score"], told


def _saving_tile(facts: Facts, place: int) -> tuple[str, list[str]]:
    own, whole = _costs(facts, place)
    if whole <= 0:
        return "Saved", ["\N{EN DASH}"]
    note = f"{plain_number(facts, whole - own)} of the {money(facts, whole)} that the full model costs"
    return "Saved", [percent(1 - own / whole), note]


def _measure_tiles(facts: Facts, place: int) -> list[tuple[str, str, list[str]]]:
    return [
        (f"measure-{number}", one.name[0].upper() + one.name[1:], _curve(facts, one, place, measure_text))
        for number, one in enumerate(facts.measures)
    ]


def _class_tiles(facts: Facts, place: int) -> Iterator[tuple[str, str, list[str]]]:
    """Lowest recall and AUC of labels, mean errors of numbers."""
    if facts.is_number:
        for name, one in zip(("recall", "auc"), facts.errors, strict=False):
            yield name, one.name, _curve(facts, one, place, lambda facts, _, value: error_text(facts, value))
        return
    classes, digits = facts.groupings[0], percent_digits(facts)
    recalls = [right / n for right, n in zip(classes.right[place], classes.n_rows, strict=True)]
    worst = recalls.index(min(recalls))
    note = f"class {classes.labels[worst]}"
    if classes.full_right is not None:
        note += f"; full model: {percent(classes.full_right[worst] / classes.n_rows[worst], digits)}"
    yield "recall", "Lowest recall of a class", [percent(recalls[worst], digits), note]
    if facts.points.auc:
        known = None if facts.full is None else facts.full.auc
        note = "area under the ROC curve" if known is None else f"full model: {fixed(known, digits + 2)}"
        yield "auc", "AUC", [fixed(facts.points.auc[place], digits + 2), note]


def _curve(facts: Facts, curve: MeasureCurve, place: int, text: Any) -> list[str]:
    """A measure at a point, its interval, and what the full model and a constant reach."""

    def told(value: float) -> str:
        return _minus(text(facts, curve.name, value))

    others = f"constant: {told(curve.constant)}"
    others = others if curve.full is None else f"full model: {told(curve.full)}; {others}"
    return [told(curve.value[place]), f"{told(curve.low[place])} to {told(curve.high[place])}", others]


def _costs(facts: Facts, place: int) -> tuple[float, float]:
    """What a point and the full model cost per row, mistakes included where they have prices; 0 if it is not known."""
    full = facts.full
    if facts.bill is None:
        return facts.points.cost[place], 0.0 if full is None else full.cost
    return facts.total(place), 0.0 if full is None else full.cost + full.accuracy


def _bought(facts: Facts, place: int) -> list[str]:
    """Names of what the stages buy for every row, and of what for some, the most frequent first."""
    last, first = len(facts.points.reach[place]) - 1, facts.systems[facts.points.system[place]].first
    bought = [
        (facts.share_buying(place, item), one.name)
        for item, one in enumerate(facts.purchases)
        if first[item] < last
    ]
    always = [name for share, name in bought if share == 1]
    later = sorted(((share, name) for share, name in bought if 0 < share < 1), key=lambda one: -one[0])
    return [_listed(always), _listed([f"{name} ({portion(share)})" for share, name in later])]


def _listed(names: list[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def groups_in_words(facts: Facts) -> list[dict[str, Any]]:
    """Captions, heads and texts of the tables of groups; one list of texts per point, one text per label."""
    found = []
    for number, group in enumerate(facts.groupings):
        name = "MAE" if facts.is_number else "recall" if number == 0 else "right"
        first = "Errors by range of the target" if facts.is_number else "Recall by class"
        full = group.full_right

        def told(sums: tuple[float, ...], counts: tuple[int, ...] = group.n_rows) -> list[str]:
            means = (one / n for one, n in zip(sums, counts, strict=True))
            if facts.is_number:
                return [error_text(facts, one) for one in means]
            return [percent(one, percent_digits(facts)) for one in means]

        found.append(
            {
                "caption": first if number == 0 else f"By {group.name}",
                "heads": [
                    group.name,
                    "rows",
                    "to the full model",
                    name,
                    *([f"{name}, full model"] if full else []),
                ],
                "at": [told(sums) for sums in group.right],
                "full": told(full) if full else None,
            }
        )
    return found


_POINTS = {True: " points", False: ""}


def _signed(facts: Facts, lead: float) -> str:
    digits = percent_digits(facts)
    size = fixed(abs(100 * lead), digits) if facts.is_right_or_wrong else fixed(abs(lead), digits + 2)
    size = size if facts.bill is None else plain_number(facts, abs(lead))
    return ("\N{MINUS SIGN}" if float(f"{lead:.7g}") < 0 else "+") + size


def _score(facts: Facts, score: float) -> str:
    return _minus(score_text(facts, score))


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")
