"""Text of a report: every number and sentence of the page, formatted.

``view`` is what the script of the page reads: numbers where something is drawn, text everywhere else.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from thrifty.reporting.facts import Facts, MeasureCurve
from thrifty.tasks.task import ERRORS

__all__ = [
    "certificate_text",
    "constant_text",
    "deployed_text",
    "is_constant_in_view",
    "labels_of",
    "lead_text",
    "measured_lines",
    "point_cells",
    "view",
]

SPACE = "\N{NO-BREAK SPACE}"
MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"

LABELS = {
    "labels": {
        "picture": "Right answers for the money",
        "score": "Answers right",
        "groups": "Recall, and who needs the full model",
        "vertical": "Share of right answers",
        "constant": "majority class",
        "certified": "how often a new row is answered wrongly where the full model is right",
    },
    "bill": {
        "picture": "What tests and mistakes cost",
        "score": "Mistakes per row",
        "groups": "Recall, and who needs the full model",
        "vertical": "Mean cost of mistakes per row",
        "constant": "best constant answer",
        "certified": "how often the answer to a new row costs more than that of the full model",
        "cost": "Tests per row",
        "across": "mean cost of tests per row",
    },
    "numbers": {
        "groups": "Errors, and who needs the full model",
        "constant": "constant",
        "certified": "how often the error of a new row is larger than that of the full model, by more than the "
        "tolerance of the fit",
    },
    "ranking": {
        "groups": "",
        "constant": "random order",
        "certified": "how often the order of a new query is worse than by the full model, by more than the tolerance "
        "of the fit",
    },
}
"""Titles and names on the page, by kind of report; for numbers and rankings, others contain the name of the score."""


def labels_of(facts: Facts) -> dict[str, str]:
    """Titles and names on the page."""
    name = facts.score_name
    shared = {"picture": f"{name} for the money", "score": name, "vertical": name}
    shared |= {"cost": "Mean cost per row", "across": "mean cost per row"}
    return shared | LABELS[facts.kind]


# -- numbers as text ---------------------------------------------------------------------------------


def _fixed(value: float, digits: int) -> str:
    # A billionth more rounds halves up, as people do; what rounds to nothing has no sign.
    text = f"{value * (1 + 1e-9):,.{digits}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", MINUS)


def _digits(largest: float) -> int:
    """Decimals that show about three digits of the largest number."""
    return min(8, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 2


def _percent_digits(facts: Facts) -> int:
    """Decimals of percentages of right answers: what the number of rows can tell apart."""
    return 1 if facts.measured.n_rows < 20_000 else 2


def _percent(share: float, digits: int = 0) -> str:
    return f"{_fixed(100 * share, digits)}{SPACE}%"


def _portion(share: float) -> str:
    """Share of rows in whole per cent; 0 and 100 are reserved for none and all."""
    if 0 < share < 0.005:
        return f"<{SPACE}1{SPACE}%"
    return f">{SPACE}99{SPACE}%" if 0.995 < share < 1 else _percent(share)


def _amount(facts: Facts, value: float) -> str:
    """An amount of money without its unit."""
    largest = max(*facts.points.cost, facts.points.cost[0], facts.full.cost if facts.full else 0.0)
    largest = largest if facts.bill is None else max(largest, *facts.bill.high)
    if 0 < largest < 1:
        return _fixed(value, _digits(largest))
    return _fixed(value, 2 if largest < 100 else 1 if largest < 1000 else 0)


def _money(facts: Facts, value: float) -> str:
    """An amount of money with its unit, if there is one."""
    return _amount(facts, value) + (f"{SPACE}{facts.unit}" if facts.unit else "")


def _score(facts: Facts, score: float) -> str:
    """A share of right answers in per cent, an R2 as it is, or what mistakes cost."""
    if facts.kind == "bill":
        return _amount(facts, score)
    digits = _percent_digits(facts)
    return _fixed(score, digits + 2) if facts.is_number else _percent(score, digits)


def _lead(facts: Facts, lead: float) -> str:
    """A difference of two scores, with its sign; of shares of right answers in points."""
    size = _score(facts, abs(lead)).removesuffix(f"{SPACE}%")
    return (MINUS if lead < 0 else "+") + size


def _measure(facts: Facts, name: str, value: float) -> str:
    """Errors in the unit of the target, accuracies in per cent, all others as they are."""
    if name in ERRORS:
        return _fixed(value, _digits(max(one.constant for one in facts.measures if one.name in ERRORS)))
    digits = _percent_digits(facts)
    return _percent(value, digits) if "accuracy" in name else _fixed(value, digits + 2)


def _interval(text: Callable[[float], str], low: float, high: float, between: str = " to ") -> str:
    return f"{text(low)}{between}{text(high)}"


def constant_text(facts: Facts) -> str:
    """The best answer that is the same for every row, and its score."""
    return f"{labels_of(facts)['constant']}: {_score(facts, facts.constant.score)}"


# -- sentences ---------------------------------------------------------------------------------------


def _named_score(facts: Facts, score: float) -> str:
    """The score with its name and article."""
    return f"{'a' if facts.score_name.startswith('D') else 'an'} {facts.score_name} of {_score(facts, score)}"


def _reaches(facts: Facts, score: float) -> str:
    """Score of a model, as the end of a sentence about it."""
    if facts.kind == "bill":
        return f"makes mistakes for {_money(facts, score)} per row"
    phrase = _named_score(facts, score)
    return f"has {phrase}" if facts.is_number else f"is right on {_score(facts, score)} of rows"


def _parts(facts: Facts, tests: float, mistakes: float) -> str:
    """A total and its two parts, where mistakes have prices."""
    total = _money(facts, tests + mistakes)
    return f"{total} per row, {_amount(facts, tests)} for tests and {_amount(facts, mistakes)} for mistakes"


def _spent(facts: Facts, place: int) -> tuple[float, float]:
    """Costs per row of a point and of the full model, with mistakes where they have prices; 0 if unknown."""
    full, bill = facts.full, facts.kind == "bill"
    whole = 0.0 if full is None else full.cost + (full.score if bill else 0.0)
    return facts.total(place) if bill else facts.points.cost[place], whole


def lead_text(facts: Facts) -> str:
    """The first lines of the page: the full model, the system, and an answer that reads nothing."""
    points, full, sentences = facts.points, facts.full, []
    if full is not None:
        named = f", {facts.full_name}," if facts.full_name else ""
        phrase = f"{_reaches(facts, full.score)} and costs {_money(facts, full.cost)} per row"
        if facts.kind == "bill":
            phrase = f"costs {_parts(facts, full.cost, full.score)}"
        sentences.append(f"Asked about every row, the full model (f0){named} {phrase}.")
    places = [place for place in range(len(points)) if points.efficient[place]]
    low, high = places[0], places[-1]
    how = f"{facts.method} answers easy rows from few features and buys more only for the others"
    if facts.bill is not None:
        least = facts.bill.least
        phrase = _parts(facts, points.cost[least], points.score[least])
        sentences.append(f"{how}. Its point of least total cost costs {phrase}.")
    elif low == high:
        phrase = _reaches(facts, points.score[low])
        sentences.append(f"{facts.method} {phrase} for {_money(facts, points.cost[low])} per row.")
    else:
        first = f"{_score(facts, points.score[low])} right"
        first = _named_score(facts, points.score[low]) if facts.is_number else first
        sentences.append(
            f"{how}: from {first} for {_money(facts, points.cost[low])} to {_score(facts, points.score[high])} for "
            f"{_money(facts, points.cost[high])}."
        )
    return " ".join([*sentences, _constant_sentence(facts)])


def _constant_sentence(facts: Facts) -> str:
    """Score of the best constant answer, as a sentence."""
    label, score = facts.constant.label, facts.constant.score
    if facts.kind == "ranking":
        phrase = f"Orders by chance would have {_named_score(facts, score)}."
        return f"{phrase} A row is a document; {facts.score_name} is a mean over queries."
    if facts.kind == "bill":
        phrase = _money(facts, score)
        return f"Always answering with {label}, without any test, would cost {phrase} per row in mistakes."
    if facts.kind == "labels":
        phrase = _score(facts, score)
        return f"Always answering with the most frequent class ({label}) would be right on {phrase}."
    errors = [
        f"{one.name} {_measure(facts, one.name, one.constant)}"
        for one in facts.measures
        if one.name in ERRORS
    ]
    phrase = f"would have {_named_score(facts, score)} ({', '.join(errors)})"
    return f"Always answering with the best constant ({label}) {phrase}."


def deployed_text(facts: Facts) -> str:
    """Score and cost of the deployed point; empty where there is none."""
    place = facts.deployed
    if place is None:
        return ""
    cost, score = facts.points.cost[place], facts.points.score[place]
    text = (
        f"{_reaches(facts, score).removeprefix('is ').removeprefix('has ')} for {_money(facts, cost)} per row"
    )
    text = _parts(facts, cost, score) if facts.kind == "bill" else text
    own, whole = _spent(facts, place)
    if whole:
        less = 1 - own / whole
        text += f", {_percent(abs(less))} {'less' if less >= 0 else 'more'} than the full model"
    return f"{text}."


def certificate_text(facts: Facts) -> list[str]:
    """The certificate, the score of its point on these rows, and what it bounds; empty where there is none."""
    certified = facts.certified
    if certified is None:
        return []
    where = []
    if certified.point is not None:
        cost, score = facts.points.cost[certified.point], facts.points.score[certified.point]
        where = [f"On the rows of this report it {_reaches(facts, score)} for {_money(facts, cost)} per row."]
    bounds = f"The certificate bounds {labels_of(facts)['certified']}."
    return [f"The certified point {certified.sentence}.", *where, bounds]


def measured_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """How the numbers were measured: term and text of each line."""
    how = facts.measured
    drawn = "rows" if how.n_queries is None else "queries"
    rows = "" if how.n_queries is None else f" documents of {how.n_queries:,} queries"
    which = "on which no operating point was chosen"
    which = which if how.held_out else "the very rows the operating points were chosen on"
    yield "Rows", f"{how.n_rows:,}{rows}, {which}"
    on = "" if how.n_chosen is None or not how.held_out else f", chosen on {how.n_chosen:,} other {drawn}"
    shown = sum(facts.points.efficient)
    fewer = "" if shown == how.n_points else f"; {shown:,} of them are shown, for evenly spaced budgets"
    yield "Operating points", f"{how.n_points:,} efficient points{on}{fewer}"
    scores = "accuracies" if facts.kind == "labels" else facts.score_name
    compared = (
        f"compared with the mean cost on the rows of the choice; costs and {scores} are of the rows above"
    )
    yield "Budget", compared
    level = f"{100 * how.level:g} % of {how.n_boot:,} bootstrap resamples of the {drawn}"
    yield "Intervals", f"{level} (seed {how.seed}), point by point"
    yield "Version", f"thrifty {how.version}"
    if facts.date is not None:
        yield "Date", facts.date
    yield from facts.notes


def point_cells(facts: Facts, place: int) -> Iterator[tuple[str, str]]:
    """Line of the table of points: head and text of each column."""
    points, marks = facts.points, ", ".join(facts.marks(place))

    def amount(value: float) -> str:
        return _amount(facts, value)

    def score(value: float) -> str:
        return _score(facts, value)

    between = f" {DASH} "
    yield "budget", amount(points.budget[place]) + (f" ({marks})" if marks else "")
    interval = f"{100 * facts.measured.level:g} % interval"
    if facts.bill is not None:
        yield "total", amount(facts.total(place))
        yield interval, _interval(amount, facts.bill.low[place], facts.bill.high[place], between)
        yield "tests", amount(points.cost[place])
        yield "mistakes", score(points.score[place])
    else:
        yield "mean cost", amount(points.cost[place])
        yield facts.score_name if facts.is_number else "right", score(points.score[place])
        yield interval, _interval(score, points.low[place], points.high[place], between)
    for one in facts.measures:
        value, low, high = (_measure_at(facts, one, end, place) for end in (one.value, one.low, one.high))
        # Beside a bill there is room for what is asked most.
        has_ends = one.low and one.name != "accuracy"
        yield one.name, value + (f" ({low.split()[0]}{between}{high.split()[0]})" if has_ends else "")
    yield "full model", f"{_fixed(100 * points.share(place), 1)} %"
    if facts.full is not None:
        own, whole = _spent(facts, place)
        yield "saved", _percent(1 - own / whole) if whole > 0 else ""
    bought = zip(facts.purchases, points.bought[place], strict=True)
    yield "features per row", _fixed(sum(one.n_columns * share for one, share in bought), 1)
    if facts.measured.n_queries:
        documents = facts.measured.n_rows / facts.measured.n_queries
        yield "cost of a query", amount(points.cost[place] * documents)


def _measure_at(facts: Facts, one: MeasureCurve, values: Sequence[float], place: int) -> str:
    return _measure(facts, one.name, values[place]) if values else ""


# -- what the script shows ---------------------------------------------------------------------------


def view(facts: Facts) -> dict[str, Any]:
    """All that the script of the page reads.

    Texts that change with the budget are numbers of a list of texts: of two hundred points many say the same.
    """
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    points, labels, full = facts.points, labels_of(facts), facts.full
    tables, every = list(_tables(facts)), range(len(points))
    unit = f", {facts.unit}" if facts.unit else ""
    others = "".join(f"{rival.name}, " for rival in facts.rivals)
    details = [_point_details(facts, place) for place in every]
    efficient = [place for place in every if points.efficient[place]]
    return {
        "start": facts.start,
        "marked": facts.marked,
        "budget": points.budget,
        "cost": points.cost,
        "score": points.score,
        "low": points.low,
        "high": points.high,
        "efficient": efficient,
        "full": None if full is None else [full.cost, full.score],
        "rivals": [{"name": one.name, "cost": one.cost, "score": one.score} for one in facts.rivals],
        "constant": _constant(facts),
        "axes": _axes(facts),
        "corner": f"mistakes per row{unit}" if facts.kind == "bill" else "",
        "across": labels["across"] + unit,
        "name": f"{labels['vertical']} against mean cost per row; {facts.method}, {others}the full model, and the "
        f"{labels['constant']}.",
        "band": f"{facts.method}, with a {100 * facts.measured.level:g}{SPACE}% band",
        "ends": [_money(facts, points.budget[place]) for place in (efficient[0], efficient[-1])],
        "tiles": [(name, head) for name, head, _ in _tiles(facts, facts.start)],
        "tables": [
            {**one, "at": [[number(text) for text in cells] for cells in one["at"]]} for one in tables
        ],
        "details": [
            {name: [number(text) for text in some] for name, some in one.items() if name != "tiles"}
            | {"tiles": [[number(text) for text in tile] for tile in one["tiles"]]}
            for one in details
        ],
        # Bars are as long as their texts say.
        "texts": list(texts),
    }


def _point_details(facts: Facts, place: int) -> dict[str, Any]:
    """A point in words: its budget, tiles and purchases, and sentences for screen readers."""
    points, (own, whole) = facts.points, _spent(facts, place)
    budget, cost, score = (
        _money(facts, points.budget[place]),
        _money(facts, points.cost[place]),
        _score(facts, points.score[place]),
    )
    ends = _interval(lambda value: _score(facts, value), points.low[place], points.high[place])
    if facts.kind == "bill":
        mistakes = _money(facts, points.score[place])
        spoken = f"{budget} per row for tests, {mistakes} for mistakes"
        phrase = f"tests cost {cost} and mistakes {mistakes} ({ends}), together {_money(facts, facts.total(place))}"
    else:
        spoken = f"{budget} per row: " + (
            f"{facts.score_name} {score}" if facts.is_number else f"{score} right"
        )
        phrase = f"{facts.score_name} is {score}" if facts.is_number else f"{score} of answers are right"
        phrase = f"{phrase} ({ends}) at a mean cost of {cost}"
    if whole > 0:
        phrase += f", {_percent(1 - own / whole)} less than the full model for every row"
    sent = f"{_portion(points.share(place))} of rows go to the full model"
    return {
        "budget": [f"{budget} per row"],
        "spoken": [spoken],
        "summary": [f"For at most {budget} per row, {phrase}; {sent}."],
        "badge": [", ".join(facts.marks(place))],
        "bought": _bought(facts, place),
        "tiles": [texts for _, _, texts in _tiles(facts, place)],
    }


def _tiles(facts: Facts, place: int) -> Iterator[tuple[str, str, list[str]]]:
    """Tiles beside the slider: identifier, heading, and the texts at a point, of which the first is the number."""
    points, labels = facts.points, labels_of(facts)
    planned = [f"planned: {_money(facts, points.budget[place])}"] if facts.measured.held_out else []
    cost = ("cost", labels["cost"], [_money(facts, points.cost[place]), *planned])
    score = ("accuracy", labels["score"], _score_tile(facts, place))
    own, whole = _spent(facts, place)
    saved = [DASH]
    if whole > 0:
        note = f"{_amount(facts, whole - own)} of the {_money(facts, whole)} that the full model costs"
        saved = [_percent(1 - own / whole), note]
    saving = ("saving", "Saved", saved)
    measures = [
        (f"measure-{number}", one.name[0].upper() + one.name[1:], _measure_tile(facts, one, place))
        for number, one in enumerate(facts.measures)
    ]
    if facts.bill is not None:
        ends = _interval(lambda one: _amount(facts, one), facts.bill.low[place], facts.bill.high[place])
        yield "total", "Tests and mistakes per row", [_money(facts, facts.total(place)), ends]
        yield from (saving, score, cost, *measures)
    else:
        yield from (score, cost, *measures[:1], saving, *measures[1:])
    yield "sent", "Full model asked for", [_portion(points.share(place)), "of rows"]
    if not facts.is_number:
        yield "recall", "Lowest recall of a class", _recall_tile(facts, place)


def _score_tile(facts: Facts, place: int) -> list[str]:
    points, full = facts.points, facts.full
    ends = _interval(lambda value: _score(facts, value), points.low[place], points.high[place])
    phrase = [_score(facts, points.score[place]), ends]
    if full is not None and points.lead_low:
        lead = _lead(facts, points.score[place] - full.score) + (" points" if facts.kind == "labels" else "")
        ends = _interval(lambda value: _lead(facts, value), points.lead_low[place], points.lead_high[place])
        phrase.append(f"{lead} against the full model ({ends})")
    label = f" ({facts.constant.label})" if facts.is_number else ""
    return [*phrase, constant_text(facts).replace(":", f"{label}:", 1)]


def _measure_tile(facts: Facts, one: MeasureCurve, place: int) -> list[str]:
    """A measure at a point, its interval, and what the full model and a constant reach."""
    value, low, high = (_measure_at(facts, one, values, place) for values in (one.value, one.low, one.high))
    others = f"constant: {_measure(facts, one.name, one.constant)}"
    if one.full is not None:
        others = f"full model: {_measure(facts, one.name, one.full)}; {others}"
    return [value, *([f"{low} to {high}"] if one.low else []), others]


def _recall_tile(facts: Facts, place: int) -> list[str]:
    classes, digits = facts.groupings[0], _percent_digits(facts)
    recalls = [right / n for right, n in zip(classes.sums[place], classes.n_rows, strict=True)]
    worst = recalls.index(min(recalls))
    note = f"class {classes.labels[worst]}"
    if classes.full_sums is not None:
        note += f"; full model: {_percent(classes.full_sums[worst] / classes.n_rows[worst], digits)}"
    return [_percent(recalls[worst], digits), note]


def _bought(facts: Facts, place: int) -> list[str]:
    """Names of the purchases for every row, and of those for some, the most frequent first."""
    last = len(facts.points.reach[place]) - 1
    own = zip(facts.points.bought[place], facts.purchases, strict=True)
    bought = [(share, one.name) for share, one in own if one.first < last]
    always = [name for share, name in bought if share == 1]
    later = sorted(((share, name) for share, name in bought if 0 < share < 1), key=lambda one: -one[0])
    return [_listed(always), _listed([f"{name} ({_portion(share)})" for share, name in later])]


def _listed(names: list[str], max_names: int = 12) -> str:
    shown = ", ".join(names[:max_names])
    return shown if len(names) <= max_names else f"{shown} and {len(names) - max_names} more"


# -- tables that follow the slider -------------------------------------------------------------------


def _tables(facts: Facts) -> Iterator[dict[str, Any]]:
    """Tables whose numbers follow the slider.

    Each has the section of the page, a caption, heads, lines of cells, the number of the column that is drawn as
    a bar, whether its last line is a sum, and the texts ``at`` each point of the cells that are None in its lines.
    """
    yield from _group_tables(facts)
    yield _purchase_table(facts)
    if facts.bill is not None and facts.bill.kinds:
        yield _mistake_table(facts)


def _group_tables(facts: Facts) -> Iterator[dict[str, Any]]:
    def means(sums: Sequence[float], counts: Sequence[int]) -> list[str]:
        values = [one / n for one, n in zip(sums, counts, strict=True)]
        if facts.is_number:
            return [_measure(facts, "MAE", value) for value in values]
        return [_percent(value, _percent_digits(facts)) for value in values]

    for number, group in enumerate(facts.groupings):
        name = "MAE" if facts.is_number else "recall" if number == 0 else "right"
        first = "Errors by range of the target" if facts.is_number else "Recall by class"
        full = None if group.full_sums is None else means(group.full_sums, group.n_rows)
        at = []
        for sent, sums in zip(group.sent, group.sums, strict=True):
            shares = [_portion(one / n) for one, n in zip(sent, group.n_rows, strict=True)]
            at.append([text for pair in zip(shares, means(sums, group.n_rows), strict=True) for text in pair])
        yield {
            "section": "groups",
            "caption": first if number == 0 else f"By {group.name}",
            "heads": [
                group.name,
                "rows",
                "to the full model",
                name,
                *([f"{name}, full model"] if full else []),
            ],
            "lines": [
                [label, f"{n:,}", None, None, *([full[k]] if full else [])]
                for k, (label, n) in enumerate(zip(group.labels, group.n_rows, strict=True))
            ],
            "bar": 2,
            "has_sum": False,
            "at": at,
        }


def _purchase_table(facts: Facts) -> dict[str, Any]:
    points, last = facts.points, len(facts.points.reach[0]) - 1
    has_stages, call = last > 1, 0.0 if facts.full is None else facts.full.call_price
    stages = [str(one.first) if one.first < last else DASH for one in facts.purchases]
    stages = ["full model" if one.first == last else stages[k] for k, one in enumerate(facts.purchases)]
    names = [
        one.name + (f" ({one.n_columns:,} columns)" if one.n_columns > 1 else "") for one in facts.purchases
    ]
    prices = [one.price for one in facts.purchases]
    if call > 0:
        names, stages, prices = [*names, "asking the full model"], [*stages, "full model"], [*prices, call]
    at = []
    for place in range(len(points)):
        shares = [*points.bought[place], *([points.share(place)] if call > 0 else [])]
        pairs = zip(shares, prices, strict=True)
        cells = [text for share, price in pairs for text in (_portion(share), _amount(facts, price * share))]
        at.append([*cells, _amount(facts, points.cost[place])])
    lines = [
        [name, *([stage] if has_stages else []), _amount(facts, price), None, None]
        for name, stage, price in zip(names, stages, prices, strict=True)
    ]
    between = ["stage"] if has_stages else []
    return {
        "section": "purchases",
        "caption": "Features",
        "heads": ["feature", *between, "price", "bought for", "per row"],
        "lines": [*lines, ["mean cost per row", *([""] if has_stages else []), "", "", None]],
        "bar": len(between) + 2,
        "has_sum": True,
        "at": at,
    }


def _mistake_table(facts: Facts) -> dict[str, Any]:
    kinds = facts.bill.kinds if facts.bill else ()
    has_full = kinds[0].full is not None and facts.full is not None
    lines = [
        [
            one.truth,
            one.answer,
            DASH if one.price is None else _amount(facts, one.price),
            None,
            None,
            *([_amount(facts, one.full or 0.0)] if has_full else []),
        ]
        for one in kinds
    ]
    whole = [_amount(facts, facts.full.score)] if has_full and facts.full else []
    at = []
    for place in range(len(facts.points)):
        cells = [text for one in kinds for text in (f"{one.count[place]:,}", _amount(facts, one.lost[place]))]
        count = sum(one.count[place] for one in kinds)
        at.append([*cells, f"{count:,}", _amount(facts, facts.points.score[place])])
    return {
        "section": "mistakes",
        "caption": "Mistakes by kind",
        "heads": [
            "true class",
            "answer",
            "price",
            "rows",
            "per row",
            *(["per row, full model"] if has_full else []),
        ],
        "lines": [*lines, ["all mistakes", "", "", None, None, *whole]],
        "bar": None,
        "has_sum": True,
        "at": at,
    }


# -- the picture -------------------------------------------------------------------------------------


def is_constant_in_view(facts: Facts) -> bool:
    """Whether a picture can reach to the constant answer and leave half of its height to the points."""
    known = [*facts.points.low, *facts.points.high, *([] if facts.full is None else [facts.full.score])]
    low, high, level = min(known), max(known), facts.constant.score
    return high - low >= (level - low if facts.kind == "bill" else high - level) / 2


def _scale(facts: Facts) -> tuple[float, str]:
    """Factor and sign of the numbers on the vertical axis."""
    return (100.0, "%") if facts.kind == "labels" else (1.0, "")


def _constant(facts: Facts) -> dict[str, Any]:
    scale, sign = _scale(facts)
    return {
        "score": facts.constant.score,
        "text": constant_text(facts),
        "tick": _fixed(scale * facts.constant.score, 0) + sign,
        "legend": f"{labels_of(facts)['constant']} for every row",
        "in_view": is_constant_in_view(facts),
        # Where it is far off, its line gets a strip of its own; of a bill, the page's first lines say what it costs.
        "strip": not is_constant_in_view(facts) and facts.kind != "bill",
    }


def _axes(facts: Facts) -> dict[str, Any]:
    """Ends of both axes, and their ticks by how many there is room for."""
    points, full = facts.points, facts.full
    floor = [facts.constant.score] if is_constant_in_view(facts) else []
    costs = [
        *points.cost,
        *(cost for one in facts.rivals for cost in one.cost),
        *([full.cost] if full else []),
    ]
    own = [*points.low, *points.high, *([full.score] if full else [])]
    every = [*own, *floor, *(score for one in facts.rivals for score in one.score)]
    low, high = min(every), max(every)
    # A rival far beyond our cheapest point must not flatten the picture; its line is cut off.
    if facts.kind == "bill":
        top = max(*own, *floor, own[0])
        high = min(high, top + 0.5 * (top - low))
    else:
        low = min([*floor, max(low, min(own) - 0.5 * (high - min(own)))])
    pad = 0.06 * (high - low) or 0.01
    across = (0.0, 1.05 * max(costs) or 1.0)
    up = (max(0.0, low - pad) if facts.kind == "bill" else low - pad, high + pad)
    return {
        "x": {"ends": across, "ticks": {n: _ticks(*across, n) for n in range(3, 9)}},
        "y": {"ends": up, "ticks": {n: _ticks(*up, n, *_scale(facts)) for n in range(4, 9)}},
    }


def _ticks(
    low: float, high: float, wanted: int, scale: float = 1.0, sign: str = ""
) -> list[tuple[float, str]]:
    """Round numbers between two ends, some ``wanted`` of them, each with its text."""
    rough = scale * (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    factor = next(one for one in (1, 2, 2.5, 5, 10) if one * power >= rough * (1 - 1e-9))
    step = factor * power
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (factor == 2.5))
    first, last = math.ceil(scale * low / step - 1e-9), math.floor(scale * high / step + 1e-9)
    return [(one * step / scale, _fixed(one * step, digits) + sign) for one in range(first, last + 1)]
