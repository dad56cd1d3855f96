"""The progress bar, on standard error and on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """Counts finished cases; silent where there is no terminal."""

    def __init__(self, total: int, bar: Progress | None) -> None:
        """Show `total` cases on `bar`."""
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=total)

    def starts(self, name: str) -> None:
        """Show which case runs now."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=name)

    @contextlib.contextmanager
    def finished(self) -> Iterator[None]:
        """Count one case, and take the bar off the screen while its report is printed."""
        if self._bar is None or self._task is None:
            yield
            return
        self._bar.stop()
        yield
        self._bar.advance(self._task)
        self._bar.start()


@contextlib.contextmanager
def bar(total: int) -> Iterator[Bar]:
    """Show a progress bar for `total` cases while the block runs."""
    if total < 2 or not sys.stderr.isatty():
        yield Bar(total, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(total, progress)
