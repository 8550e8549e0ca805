"""Text of results: every number, sentence and table of the report page and of the commands.

``view`` is what the script of the page reads: numbers where something is drawn, text everywhere else.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from thrifty._version import __version__
from thrifty.engine.tasks.task import ERRORS
from thrifty.reporting.facts import Curve, Facts
from thrifty.reporting.measure import shortened

SPACE = "\N{NO-BREAK SPACE}"
MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"

LABELS = {
    "labels": {
        "picture": "Right answers by mean cost",
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
    "routing": {
        "constant": "cheapest model",
        "full": "best single model",
        "purchases": "Models asked",
        "purchases_hint": "At the budget above. A model costs rows differently: the last column is what was paid, and "
        "adds up to the mean cost.",
        "always": "Asked about every row",
        "later": "About some",
        "items": "Models",
        "item": "model",
        "price": "mean price",
        "share": "asked for",
        "count": "models per row",
    },
}
"""Titles and names on the page, by kind of report; for numbers and rankings, others contain the name of the score."""

_COMMON = {
    "cost": "Mean cost per row",
    "across": "mean cost per row",
    "full": "full model",
    "purchases": "What is bought",
    "purchases_hint": "At the budget above. Price times the share of rows that pay it adds up to the mean cost. A row "
    "goes from stage to stage, and pays until one of them answers.",
    "always": "Bought for every row",
    "later": "Only where that is not enough",
    "items": "Features",
    "item": "feature",
    "price": "price",
    "share": "bought for",
    "count": "features per row",
}


def titles_of(facts: Facts) -> dict[str, str]:
    """Titles and names on the page."""
    name = facts.score.name
    shared = {"picture": f"{name} by mean cost", "score": name, "vertical": name}
    if facts.kind == "routing":
        title, mean = name[0].upper() + name[1:], _name_of_mean(facts)
        shared = {
            "picture": f"{title} by mean cost",
            "score": title,
            "vertical": f"Mean {mean}" if mean == name else name,
            "groups": f"{mean[0].upper()}{mean[1:]} by group",
            "certified": f"the mean {mean} lost against a single model, or the mean cost of the next rows",
        }
    return _COMMON | shared | LABELS[facts.kind]


def _name_of_mean(facts: Facts) -> str:
    """Name of the mean over rows on a page about models that are asked; an R2 is none."""
    return "quality" if facts.score.name.startswith("R2") else facts.score.name


# -- numbers as text ---------------------------------------------------------------------------------


def _fixed(value: float, digits: int) -> str:
    # A billionth more rounds halves up, as people do; what rounds to nothing has no sign.
    text = f"{value * (1 + 1e-9):,.{digits}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", MINUS)


def _digits(largest: float) -> int:
    """Decimals that show about three digits of the largest number."""
    return min(8, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 2


def _percent(share: float, digits: int = 0) -> str:
    return f"{_fixed(100 * share, digits)}{SPACE}%"


def _portion(share: float) -> str:
    """Share of rows in whole per cent; 0 and 100 are reserved for none and all."""
    if 0 < share < 0.005:
        return f"<{SPACE}1{SPACE}%"
    return f">{SPACE}99{SPACE}%" if 0.995 < share < 1 else _percent(share)


def amount_text(facts: Facts, value: float, *, unit: bool = False) -> str:
    """An amount of money, by default without its unit."""
    largest = max(*facts.cost.value, facts.cost.full or 0.0, *(facts.total.high if facts.total else ()))
    digits = _digits(largest) if 0 < largest < 1 else 2 if largest < 100 else 1 if largest < 1000 else 0
    return _fixed(value, digits) + (f"{SPACE}{facts.unit}" if unit and facts.unit else "")


def _money(facts: Facts, value: float) -> str:
    return amount_text(facts, value, unit=True)


def value_text(facts: Facts, name: str, value: float | None) -> str:
    """A measure: shares in per cent, errors in the unit of the target, money, all others as they are."""
    if value is None:
        return DASH
    if name in ("cost of mistakes", "total", "mean cost"):
        return amount_text(facts, value)
    if name in ERRORS:
        largest = max(curve.constant or curve.value[0] for curve in facts.measures if curve.name in ERRORS)
        return _fixed(value, _digits(largest))
    digits = 1 if facts.n_rows < 20_000 else 2  # what the number of rows can tell apart
    is_share = "accuracy" in name or name.startswith(("recall of ", "agreement with "))
    return _percent(value, digits) if is_share else _fixed(value, digits + 2)


def interval_text(facts: Facts, curve: Curve, place: int, between: str = " to ") -> str:
    """Ends of the interval of a measure at a point; empty where it has none."""
    ends = (curve.low[place], curve.high[place]) if curve.low else ()
    return between.join(value_text(facts, curve.name, end) for end in ends)


def _score(facts: Facts, score: float | None) -> str:
    return value_text(facts, facts.score.name, score)


def _lead(facts: Facts, lead: float) -> str:
    """A difference of two scores, with its sign; of shares of right answers in points."""
    return (MINUS if lead < 0 else "+") + _score(facts, abs(lead)).removesuffix(f"{SPACE}%")


def _lead_and_ends(facts: Facts, place: int, than: str = "") -> str:
    """By how much a point leads the full model, and the interval of that; empty where that is unknown."""
    if facts.lead is None:
        return ""
    value, low, high = (
        _lead(facts, ends[place]) for ends in (facts.lead.value, facts.lead.low, facts.lead.high)
    )
    return f"{value}{' points' if facts.kind == 'labels' else ''}{than} ({low} to {high})"


def _constant_text(facts: Facts) -> str:
    """The best answer that is the same for every row, and its score."""
    return f"{titles_of(facts)['constant']}: {_score(facts, facts.score.constant)}"


def results_table(facts: Facts, place: int = 0) -> list[tuple[str, str, str, str]]:
    """Results of one point in lines: measure, this system with its interval, the full model, a constant answer."""

    def line(name: str, curve: Curve, factor: float = 1.0) -> tuple[str, str, str, str]:
        value = value_text(facts, curve.name, factor * curve.value[place])
        ends = interval_text(facts, curve, place).replace(f"{SPACE}%", "") if factor == 1.0 else ""
        others = (
            value_text(facts, curve.name, None if other is None else factor * other)
            for other in (curve.full, curve.constant)
        )
        return (name, f"{value} ({ends})" if ends else value, *others)  # type: ignore[return-value]  # four cells

    cost = f"{facts.cost.name}, {facts.unit}" if facts.unit else facts.cost.name
    costs = [line(f"mean cost in {curve.name}", curve) for curve in facts.costs] or [line(cost, facts.cost)]
    lines = [line(facts.score.name, facts.score), *costs]
    if facts.lead is not None:
        lines.insert(1, (f"against the {titles_of(facts)['full']}", _lead_and_ends(facts, place), "", ""))
    lines += [line(curve.name, curve) for curve in facts.curves[1:]]
    if facts.n_queries:
        lines.append(line("mean cost of a query", facts.cost, facts.n_rows / facts.n_queries))
    labels = titles_of(facts)
    head = ("", "this system", labels["full"], labels["constant"])
    return [tuple(text.replace(SPACE, " ") for text in cells) for cells in (head, *lines)]  # type: ignore[misc]  # four cells


# -- sentences ---------------------------------------------------------------------------------------


def _named_score(facts: Facts, score: float) -> str:
    """The score with its name and article."""
    return f"{'a' if facts.score.name[0] in 'Dq' else 'an'} {facts.score.name} of {_score(facts, score)}"


def _reaches(facts: Facts, score: float) -> str:
    """Score of a model, as the end of a sentence about it."""
    if facts.kind == "bill":
        return f"makes mistakes for {_money(facts, score)} per row"
    phrase = _named_score(facts, score)
    return f"has {phrase}" if facts.is_number else f"is right on {_score(facts, score)} of rows"


def _parts(facts: Facts, tests: float, mistakes: float) -> str:
    """A total and its two parts, where mistakes have prices."""
    total = _money(facts, tests + mistakes)
    return f"{total} per row, {amount_text(facts, tests)} for tests and {amount_text(facts, mistakes)} for mistakes"


def _spending(facts: Facts) -> Curve:
    """Cost per row, with mistakes where they have prices."""
    return facts.total or facts.cost


def _saved(facts: Facts, place: int) -> float | None:
    """Share of the full model's cost that a point saves; None if that cost is unknown or nothing."""
    spending = _spending(facts)
    return 1 - spending.value[place] / spending.full if spending.full else None


def lead_text(facts: Facts) -> str:
    """The first lines of the page: the full model, the system, and an answer that reads nothing."""
    cost, score, sentences = facts.cost, facts.score, []
    if cost.full is not None and score.full is not None:
        named = f", {facts.full_name}," if facts.full_name else ""
        phrase = f"{_reaches(facts, score.full)} and costs {_money(facts, cost.full)} per row"
        if facts.kind == "bill":
            phrase = f"costs {_parts(facts, cost.full, score.full)}"
        which = titles_of(facts)["full"] + ("" if facts.kind == "routing" else " (f0)")
        sentences.append(f"Asked about every row, the {which}{named} {phrase}.")
    places = [place for place in range(len(facts)) if facts.efficient[place]]
    low, high = places[0], places[-1]
    how = f"{facts.method} answers easy rows from few features and buys more only for the others"
    if facts.kind == "routing":
        how = f"{facts.method} asks cheap models where they suffice and compares answers where they do not"
    if facts.kind == "bill":
        least = facts.marked["least total cost"]
        phrase = _parts(facts, cost.value[least], score.value[least])
        sentences.append(f"{how}. Its point of least total cost costs {phrase}.")
    elif low == high:
        phrase = _reaches(facts, score.value[low])
        sentences.append(f"{facts.method} {phrase} for {_money(facts, cost.value[low])} per row.")
    else:
        first = f"{_score(facts, score.value[low])} right"
        first = _named_score(facts, score.value[low]) if facts.is_number else first
        sentences.append(
            f"{how}: from {first} for {_money(facts, cost.value[low])} to {_score(facts, score.value[high])} for "
            f"{_money(facts, cost.value[high])}."
        )
    return " ".join([*sentences, _constant_sentence(facts)])


def _constant_sentence(facts: Facts) -> str:
    """Score of the best constant answer, as a sentence."""
    label, score = facts.constant, facts.score.constant or 0.0
    if facts.kind == "routing":
        return f"The cheapest model alone, {label}, has {_named_score(facts, score)}."
    if facts.kind == "ranking":
        phrase = f"Orders by chance would have {_named_score(facts, score)}."
        return f"{phrase} A row is a document; {facts.score.name} is a mean over queries."
    if facts.kind == "bill":
        phrase = _money(facts, score)
        return f"Always answering with {label}, without any test, would cost {phrase} per row in mistakes."
    if facts.kind == "labels":
        phrase = _score(facts, score)
        return f"Always answering with the most frequent class ({label}) would be right on {phrase}."
    errors = [
        f"{curve.name} {value_text(facts, curve.name, curve.constant)}"
        for curve in facts.measures
        if curve.name in ERRORS
    ]
    phrase = f"would have {_named_score(facts, score)} ({', '.join(errors)})"
    return f"Always answering with the best constant ({label}) {phrase}."


def deployed_text(facts: Facts) -> str:
    """Score and cost of the deployed point; empty where there is none."""
    place = facts.marked.get("deployed")
    if place is None:
        return ""
    cost, score = facts.cost.value[place], facts.score.value[place]
    paid = " and ".join(f"{quantity(curve.value[place])} {curve.name}" for curve in facts.costs)
    paid = paid or _money(facts, cost)
    text = f"{_reaches(facts, score).removeprefix('is ').removeprefix('has ')} for {paid} per row"
    text = _parts(facts, cost, score) if facts.kind == "bill" else text
    less = _saved(facts, place)
    if less is not None:
        text += (
            f", {_percent(abs(less))} {'less' if less >= 0 else 'more'} than the {titles_of(facts)['full']}"
        )
    return f"{text}."


def lot_text(facts: Facts) -> str:
    """Share of the rows for which the mix of two points decides by their keys."""
    rows = "rows" if facts.n_queries is None else "documents"
    return f"the keys of {_portion(facts.by_lot).replace(SPACE, ' ')} of the {rows} decide between two operating points"


def certificate_text(facts: Facts) -> list[str]:
    """The certificate, the score of its point on these rows, and what it bounds; empty where there is none."""
    if not facts.certificate:
        return []
    where, place = [], facts.marked.get("certified")
    if place is not None:
        cost, score = facts.cost.value[place], facts.score.value[place]
        where = [f"On the rows of this report it {_reaches(facts, score)} for {_money(facts, cost)} per row."]
    bounds = f"The certificate bounds {titles_of(facts)['certified']}."
    return [f"The certified point {facts.certificate}.", *where, bounds]


def measured_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Circumstances of the measurement: term and text of each line."""
    drawn = "rows" if facts.n_queries is None else "queries"
    rows = "" if facts.n_queries is None else f" documents of {facts.n_queries:,} queries"
    which = "on which no operating point was chosen"
    which = which if facts.held_out else "the very rows the operating points were chosen on"
    yield "Rows", f"{facts.n_rows:,}{rows}, {which}"
    on = (
        ""
        if facts.n_chosen is None or not facts.held_out
        else f", chosen on {facts.n_chosen:,} other {drawn}"
    )
    shown = sum(facts.efficient)
    fewer = "" if shown == facts.n_points else f"; {shown:,} of them are shown, for evenly spaced budgets"
    yield "Operating points", f"{facts.n_points:,} efficient points{on}{fewer}"
    scores = "accuracies" if facts.kind == "labels" else facts.score.name
    compared = (
        f"compared with the mean cost on the rows of the choice; costs and {scores} are of the rows above"
    )
    yield "Budget", compared
    if facts.by_lot:
        yield "Mix", f"{lot_text(facts)} at the deployed point"
    level = f"{100 * facts.level:g} % of {facts.n_boot:,} bootstrap resamples of the {drawn}"
    yield "Intervals", f"{level} (seed {facts.seed}), point by point"
    yield "Version", f"thrifty {__version__}"
    yield from facts.notes


def point_cells(facts: Facts, place: int) -> Iterator[tuple[str, str]]:
    """Line of the table of points: head and text of each column."""
    between, marks = f" {DASH} ", ", ".join(facts.marks(place))
    yield "budget", amount_text(facts, facts.budget[place]) + (f" ({marks})" if marks else "")
    scored = facts.total or facts.score
    head = {
        "accuracy": "right",
        "cost of mistakes": "mistakes",
        "mean cost": "tests" if facts.total else "mean cost",
    }
    first = (facts.cost, facts.score) if facts.total is None else (facts.total, facts.cost, facts.score)
    for curve in first:
        yield head.get(curve.name, curve.name), value_text(facts, curve.name, curve.value[place])
        if curve is scored:
            yield f"{100 * facts.level:g} % interval", interval_text(facts, curve, place, between)
    for curve in facts.costs:
        yield curve.name, quantity(curve.value[place])
    for curve in facts.measures:
        text = value_text(facts, curve.name, curve.value[place])
        # Beside a bill there is room for what is asked most.
        ends = "" if curve.name == "accuracy" else interval_text(facts, curve, place, between)
        yield curve.name, text + (f" ({ends.replace(f'{SPACE}%', '')})" if ends else "")
    labels = titles_of(facts)
    yield labels["full"], f"{_fixed(100 * facts.share[place], 1)} %"
    saved = _saved(facts, place)
    if facts.cost.full is not None:
        yield "saved", "" if saved is None else _percent(saved)
    bought = zip(facts.purchases, facts.bought[place], strict=True)
    yield labels["count"], _fixed(sum(purchase.n_columns * share for purchase, share in bought), 1)
    if facts.n_queries:
        yield "cost of a query", amount_text(facts, facts.cost.value[place] * facts.n_rows / facts.n_queries)


# -- what the script shows ---------------------------------------------------------------------------


def view(facts: Facts) -> dict[str, Any]:
    """All that the script of the page reads.

    Texts that change with the budget are numbers of a list of texts: of two hundred points many say the same.
    """
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    labels, cost, score = titles_of(facts), facts.cost, facts.score
    tables, every = list(_tables(facts)), range(len(facts))
    unit = f", {facts.unit}" if facts.unit else ""
    others = "".join(f"{rival.name}, " for rival in facts.rivals)
    details = [_point_details(facts, place) for place in every]
    efficient = [place for place in every if facts.efficient[place]]
    return {
        "start": facts.start,
        "marked": facts.marked,
        "budget": facts.budget,
        "cost": cost.value,
        "score": score.value,
        "low": score.low,
        "high": score.high,
        "efficient": efficient,
        "full": None if cost.full is None else [cost.full, score.full],
        "rivals": [{"name": rival.name, "cost": rival.cost, "score": rival.score} for rival in facts.rivals],
        "constant": _constant(facts),
        "axes": _axes(facts),
        "corner": f"mistakes per row{unit}" if facts.kind == "bill" else "",
        "across": labels["across"] + unit,
        "name": f"{labels['vertical']} against mean cost per row; {facts.method}, {others}the {labels['full']}, and "
        f"the {labels['constant']}.",
        "full_name": labels["full"],
        "bought": [labels["always"], labels["later"]],
        "is_mixed": facts.is_mixed,
        "band": f"{facts.method}, with a {100 * facts.level:g}{SPACE}% band",
        "ends": [_money(facts, facts.budget[place]) for place in (efficient[0], efficient[-1])],
        "tiles": [(name, head) for name, head, _ in _tiles(facts, facts.start)],
        "tables": [
            {**table, "at": [[number(text) for text in cells] for cells in table["at"]]} for table in tables
        ],
        "details": [
            {name: [number(text) for text in some] for name, some in details_at.items() if name != "tiles"}
            | {"tiles": [[number(text) for text in tile] for tile in details_at["tiles"]]}
            for details_at in details
        ],
        # Bars are as long as their texts say.
        "texts": list(texts),
    }


def _point_details(facts: Facts, place: int) -> dict[str, Any]:
    """A point in words: its budget, tiles and purchases, and sentences for screen readers."""
    budget, cost = _money(facts, facts.budget[place]), _money(facts, facts.cost.value[place])
    score, ends = _score(facts, facts.score.value[place]), interval_text(facts, facts.score, place)
    if facts.total is not None:
        mistakes = _money(facts, facts.score.value[place])
        spoken = f"{budget} per row for tests, {mistakes} for mistakes"
        total = _money(facts, facts.total.value[place])
        phrase = f"tests cost {cost} and mistakes {mistakes} ({ends}), together {total}"
    else:
        spoken = f"{budget} per row: " + (
            f"{facts.score.name} {score}" if facts.is_number else f"{score} right"
        )
        phrase = f"{facts.score.name} is {score}" if facts.is_number else f"{score} of answers are right"
        phrase = f"{phrase} ({ends}) at a mean cost of {cost}"
    saved = _saved(facts, place)
    if saved is not None:
        phrase += f", {_percent(saved)} less than the {titles_of(facts)['full']} for every row"
    sent = f"{_portion(facts.share[place])} of rows go to the {titles_of(facts)['full']}"
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
    labels = titles_of(facts)
    planned = [f"planned: {_money(facts, facts.budget[place])}"] if facts.held_out else []
    by_resource = [", ".join(f"{quantity(curve.value[place])} {curve.name}" for curve in facts.costs)]
    planned += by_resource if facts.costs else []
    cost = ("cost", labels["cost"], [_money(facts, facts.cost.value[place]), *planned])
    score = ("accuracy", labels["score"], _score_tile(facts, place))
    saved, full, texts = _saved(facts, place), _spending(facts).full, [DASH]
    if saved is not None and full is not None:
        note = (
            f"{amount_text(facts, saved * full)} of the {_money(facts, full)} that the {labels['full']} costs"
        )
        texts = [_percent(saved), note]
    saving = ("saving", "Saved", texts)
    measures = [
        (f"measure-{number}", curve.name[0].upper() + curve.name[1:], _measure_tile(facts, curve, place))
        for number, curve in enumerate(facts.measures)
    ]
    if facts.total is not None:
        total = [_money(facts, facts.total.value[place]), interval_text(facts, facts.total, place)]
        yield "total", "Tests and mistakes per row", total
        yield from (saving, score, cost, *measures)
    else:
        yield from (score, cost, *measures[:1], saving, *measures[1:])
    asked = labels["full"].capitalize()
    yield "sent", f"{asked} asked for", [_portion(facts.share[place]), "of rows"]
    if not facts.is_number:
        yield "recall", "Lowest recall of a class", _recall_tile(facts, place)


def _score_tile(facts: Facts, place: int) -> list[str]:
    score = facts.score
    phrase = [_score(facts, score.value[place]), interval_text(facts, score, place)]
    if facts.lead is not None:
        phrase.append(_lead_and_ends(facts, place, f" against the {titles_of(facts)['full']}"))
    label = f" ({facts.constant})" if facts.is_number else ""
    return [*phrase, _constant_text(facts).replace(":", f"{label}:", 1)]


def _measure_tile(facts: Facts, curve: Curve, place: int) -> list[str]:
    """A measure at a point, its interval, and what the full model and a constant reach."""
    others = f"constant: {value_text(facts, curve.name, curve.constant)}"
    if curve.full is not None:
        others = f"full model: {value_text(facts, curve.name, curve.full)}; {others}"
    ends = interval_text(facts, curve, place)
    return [value_text(facts, curve.name, curve.value[place]), *([ends] if ends else []), others]


def _recall_tile(facts: Facts, place: int) -> list[str]:
    classes = facts.groupings[0]
    recalls = [right / n for right, n in zip(classes.sums[place], classes.n_rows, strict=True)]
    worst = recalls.index(min(recalls))
    note = f"class {classes.labels[worst]}"
    if classes.full_sums is not None:
        theirs = classes.full_sums[worst] / classes.n_rows[worst]
        note += f"; full model: {value_text(facts, 'recall of a class', theirs)}"
    return [value_text(facts, "recall of a class", recalls[worst]), note]


def _bought(facts: Facts, place: int) -> list[str]:
    """Names of the purchases for every row, and of those for some, the most frequent first."""
    bought_at = zip(facts.bought[place], facts.purchases, strict=True)
    bought = [(share, purchase.name) for share, purchase in bought_at if purchase.first < facts.n_stages]
    always = [name for share, name in bought if share == 1]
    later = sorted(((share, name) for share, name in bought if 0 < share < 1), key=lambda pair: -pair[0])
    return [shortened(always, 12), shortened([f"{name} ({_portion(share)})" for share, name in later], 12)]


# -- tables that follow the slider -------------------------------------------------------------------


def _tables(facts: Facts) -> Iterator[dict[str, Any]]:
    """Tables whose numbers follow the slider.

    Each has the section of the page, a caption, heads, lines of cells, the number of the column that is drawn as
    a bar, whether its last line is a sum, and the texts ``at`` each point of the cells that are None in its lines.
    """
    yield from _group_tables(facts)
    yield _purchase_table(facts)
    if facts.mistakes:
        yield _mistake_table(facts)


def _group_tables(facts: Facts) -> Iterator[dict[str, Any]]:
    def means(sums: Sequence[float], counts: Sequence[int]) -> list[str]:
        name = "MAE" if facts.is_number else "recall of a class"
        name = _name_of_mean(facts) if facts.kind == "routing" else name
        return [value_text(facts, name, total / n) for total, n in zip(sums, counts, strict=True)]

    for number, group in enumerate(facts.groupings):
        name = "MAE" if facts.is_number else "recall" if number == 0 else "right"
        first = "Errors by range of the target" if facts.is_number else "Recall by class"
        if facts.kind == "routing":
            name, first = _name_of_mean(facts), f"By {group.name}"
        full = None if group.full_sums is None else means(group.full_sums, group.n_rows)
        at = []
        for sent, sums in zip(group.sent, group.sums, strict=True):
            shares = [_portion(count / n) for count, n in zip(sent, group.n_rows, strict=True)]
            at.append([text for pair in zip(shares, means(sums, group.n_rows), strict=True) for text in pair])
        yield {
            "section": "groups",
            "caption": first if number == 0 else f"By {group.name}",
            "heads": [
                group.name,
                "rows",
                f"to the {titles_of(facts)['full']}",
                name,
                *([f"{name}, {titles_of(facts)['full']}"] if full else []),
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
    last, has_stages = facts.n_stages, facts.n_stages > 1
    lines, at = [], []
    for purchase in facts.purchases:
        name = purchase.name + (f" ({purchase.n_columns:,} columns)" if purchase.n_columns > 1 else "")
        stage = (
            str(purchase.first) if purchase.first < last else "full model" if purchase.first == last else DASH
        )
        lines.append([name, *([stage] if has_stages else []), amount_text(facts, purchase.price), None, None])
    for place, (bought, cost) in enumerate(zip(facts.bought, facts.cost.value, strict=True)):
        prices = [purchase.price for purchase in facts.purchases]
        paid = facts.spent[place] if facts.spent else [a * b for a, b in zip(prices, bought, strict=True)]
        pairs = zip(bought, paid, strict=True)
        cells = [text for share, spent in pairs for text in (_portion(share), amount_text(facts, spent))]
        at.append([*cells, amount_text(facts, cost)])
    between, labels = ["stage"] if has_stages else [], titles_of(facts)
    return {
        "section": "purchases",
        "caption": labels["items"],
        "heads": [labels["item"], *between, labels["price"], labels["share"], "per row"],
        "lines": [*lines, ["mean cost per row", *([""] if has_stages else []), "", "", None]],
        "bar": len(between) + 2,
        "has_sum": True,
        "at": at,
    }


def _mistake_table(facts: Facts) -> dict[str, Any]:
    kinds, full = facts.mistakes, facts.score.full
    has_full = kinds[0].full is not None and full is not None
    lines = [
        [
            kind.truth,
            kind.answer,
            DASH if kind.price is None else amount_text(facts, kind.price),
            None,
            None,
            *([amount_text(facts, kind.full or 0.0)] if has_full else []),
        ]
        for kind in kinds
    ]
    whole = [_score(facts, full)] if has_full else []
    at = []
    for place, score in enumerate(facts.score.value):
        cells = [
            text
            for kind in kinds
            for text in (f"{kind.count[place]:,}", amount_text(facts, kind.lost[place]))
        ]
        at.append([*cells, f"{sum(kind.count[place] for kind in kinds):,}", _score(facts, score)])
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


def _scores(facts: Facts) -> list[float]:
    """Scores that the picture reaches to: intervals of all points, and the full model."""
    return [*facts.score.low, *facts.score.high, *([] if facts.score.full is None else [facts.score.full])]


def is_constant_in_view(facts: Facts) -> bool:
    """True if a picture can reach to the constant answer and leave half of its height to the points."""
    level = facts.score.constant
    if level is None:
        return False
    low, high = min(_scores(facts)), max(_scores(facts))
    return high - low >= (level - low if facts.kind == "bill" else high - level) / 2


def _scale(facts: Facts) -> tuple[float, str]:
    """Factor and sign of the numbers on the vertical axis."""
    return (100.0, "%") if facts.kind == "labels" else (1.0, "")


def _constant(facts: Facts) -> dict[str, Any]:
    (scale, sign), level = _scale(facts), facts.score.constant
    return {
        "score": level,
        "text": _constant_text(facts),
        "tick": _fixed(scale * (level or 0.0), 0) + sign,
        "legend": f"{titles_of(facts)['constant']} for every row",
        "in_view": is_constant_in_view(facts),
        # Where it is far off, its line gets a strip of its own; of a bill, the page's first lines say what it costs.
        "strip": not is_constant_in_view(facts) and facts.kind != "bill" and level is not None,
    }


def _axes(facts: Facts) -> dict[str, Any]:
    """Ends of both axes, and their ticks by how many there is room for."""
    floor = [facts.score.constant] if is_constant_in_view(facts) and facts.score.constant is not None else []
    costs = [
        *facts.cost.value,
        *(cost for rival in facts.rivals for cost in rival.cost),
        facts.cost.full or 0.0,
    ]
    scores = _scores(facts)
    every = [*scores, *floor, *(score for rival in facts.rivals for score in rival.score)]
    low, high = min(every), max(every)
    # A rival far beyond our cheapest point must not flatten the picture; its line is cut off.
    if facts.kind == "bill":
        top = max(*scores, *floor, scores[0])
        high = min(high, top + 0.5 * (top - low))
    else:
        low = min([*floor, max(low, min(scores) - 0.5 * (high - min(scores)))])
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
    factor = next(step for step in (1, 2, 2.5, 5, 10) if step * power >= rough * (1 - 1e-9))
    step = factor * power
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (factor == 2.5))
    first, last = math.ceil(scale * low / step - 1e-9), math.floor(scale * high / step + 1e-9)
    return [(tick * step / scale, _fixed(tick * step, digits) + sign) for tick in range(first, last + 1)]


# -- sentences of the commands ----------------------------------------------------------------------


def quantity(value: float) -> str:
    """Format a cost or budget with at most three decimals, without trailing zeros."""
    return f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) < 1000 else f"{value:,.0f}"


def unit_of(facts: Facts) -> str:
    """Unit of the mean score: rows, or queries."""
    return "rows" if facts.n_queries is None else "queries"


def interval_in_words(facts: Facts, n_new: int) -> str:
    """Interval of the score of so many new rows or queries."""
    name, ends = facts.score.name, facts.interval(n_new)
    low, high = (value_text(facts, name, end).replace("\N{NO-BREAK SPACE}", " ") for end in ends)
    return f"{'a' if name[0] in 'cDm' else 'an'} {name} of {low} to {high}"


def expected_in_words(facts: Facts, expected: Facts) -> str:
    """Results that the fit expected of so many rows."""
    score, costs = interval_in_words(expected, facts.n_queries or facts.n_rows), []
    for curve in expected.costs or (expected.cost,):
        mean, low, high = (quantity(values[0]) for values in (curve.value, curve.low, curve.high))
        costs.append(f"{mean}{f' {curve.name}' if expected.costs else ''} ({low} to {high})")
    return f"{score} for so many {unit_of(facts)}, and a mean cost of {' and '.join(costs)}"
