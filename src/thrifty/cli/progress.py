"""Progress on standard error, with the time remaining; silent where nobody watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Report", "progress"]

Report = Callable[[str, int, int], None]
"""Called as ``report(what, done, total)``."""


@contextmanager
def progress() -> Iterator[Report]:
    """A bar per piece of work, gone when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, int] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = int(bar.add_task(what, total=total))
            bar.update(tasks[what], completed=done)  # type: ignore[arg-type]  # TaskID is an int

        yield report
