"""How a page speaks of scores: labels are right or wrong, numbers have an R2 and errors in a unit."""

import math

from thrifty.report.facts import Facts

__all__ = [
    "article",
    "error_digits",
    "error_text",
    "percent_digits",
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
}


def words_of(facts: Facts) -> dict[str, str]:
    """Titles and names on the page."""
    if not facts.is_number:
        return _LABELS
    names = [*(one.name for one in facts.errors), "", ""]
    is_ranking = facts.measured.n_queries is not None
    return {
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


def percent_digits(facts: Facts) -> int:
    """Decimals of percentages of right answers: what the number of rows can tell apart."""
    return 1 if facts.measured.n_rows < 20_000 else 2


def error_digits(facts: Facts) -> int:
    """Decimals of errors: about three digits of the largest."""
    largest = max((one.constant for one in facts.errors), default=0.0)
    return min(8, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 2


def score_text(facts: Facts, score: float) -> str:
    """A share of right answers in per cent, or an R2 as it is."""
    digits = percent_digits(facts)
    if facts.is_number:
        return f"{score:.{digits + 2}f}"
    return f"{100 * score:.{digits}f}\N{NO-BREAK SPACE}%"


def error_text(facts: Facts, error: float) -> str:
    """A mean error in the unit of the target."""
    return f"{error:,.{error_digits(facts)}f}"


def reaches(facts: Facts, score: float) -> str:
    """What a model does, as the end of a sentence about it."""
    told = score_text(facts, score)
    return (
        f"has {article(facts)} {facts.score} of {told}" if facts.is_number else f"is right on {told} of rows"
    )


def article(facts: Facts) -> str:
    """The article of the name of the score."""
    return "a" if facts.score.startswith("D") else "an"
