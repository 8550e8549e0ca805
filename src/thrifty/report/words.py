"""How a page speaks of scores: labels are right or wrong, or cost money; numbers have an R2 and errors in a unit."""

import math

from thrifty.report.facts import Facts

__all__ = [
    "article",
    "cost_digits",
    "error_digits",
    "error_text",
    "fixed",
    "lead_of_bill",
    "measure_text",
    "money",
    "parts_of",
    "percent_digits",
    "plain_number",
    "reaches",
    "score_text",
    "words_of",
]

_LABELS = {
    "picture": "Right answers for the money",
    "score": "Answers right",
    "first": "Lowest recall of a class",
    "second": "AUC",
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
    names = [*(one.name for one in facts.errors), "", ""]
    is_ranking = facts.measured.n_queries is not None
    return _LABELS | {
        "picture": f"{facts.score} for the money",
        "score": facts.score,
        "first": names[0],
        "second": names[1],
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
