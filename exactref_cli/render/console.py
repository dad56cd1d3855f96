"""The consoles that reports are printed on, and how numbers are written."""

from __future__ import annotations

import math
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, RenderableType

WIDTH = 128  # of files and pipes; the whole table needs this much
STYLES = {"covered": "green", "violated": "bold red", "raised": "bold red", "error": "bold red"}

# Digits that identify a value of the format.
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_DIGITS = {"float64": 17, "float32": 9, "float16": 5, "bfloat16": 4, **dict.fromkeys(_FLOAT8, 3)}


def on(stream: TextIO | None = None, width: int | None = None) -> Console:
    """Return a console that prints on a stream (standard output by default), with colour on terminals only."""
    target = sys.stdout if stream is None else stream
    console = Console(file=target, highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)
    if width is None:
        console.width = max(WIDTH, console.width if console.is_terminal else 0)
    return console


def room(console: Console) -> int:
    """Return how many columns there are before lines wrap: those of the terminal, `WIDTH` elsewhere."""
    try:
        return os.get_terminal_size(console.file.fileno()).columns if console.is_terminal else console.width
    except (OSError, ValueError):  # a terminal that has no size, or none behind the stream
        return console.width


def needs(console: Console, shown: RenderableType, indent: int = 2) -> int:
    """Return how many columns `put` takes."""
    return indent + console.measure(shown).maximum


def put(console: Console, shown: RenderableType, indent: int = 2, *, width: int | None = None) -> None:
    """Print something as wide as it wants to be, or `width`, indented and without spaces at the ends of lines."""
    with console.capture() as capture:
        console.print(shown, soft_wrap=False, width=width)
    for line in capture.get().splitlines():
        console.file.write((" " * indent + line).rstrip() + "\n")


def folded(console: Console, text: str, indent: int = 2) -> str:
    """Return a line as it is printed: folded at words on a terminal, what follows indented; whole elsewhere."""
    if not console.is_terminal or indent + len(text) <= room(console):
        return " " * indent + text
    width = max(room(console), 40)
    return textwrap.fill(text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2),
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


def style(words: str) -> str:
    """Return the style of a verdict's words."""
    if words.endswith("as expected"):
        return STYLES["covered"]
    if "expected" in words:
        return STYLES["violated"]
    return STYLES.get(words.split()[0], "yellow")


def number(value: float) -> str:
    """Return a measured number with three digits, "-" where there is none."""
    return "-" if math.isnan(value) else f"{value:.3g}"


def exactly(value: float, dtype: str) -> str:
    """Return a number of a float format with as many digits as identify it."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.{_DIGITS.get(dtype, 17)}g}"


def sizes(shape: Sequence[int]) -> str:
    """Return a shape as the command line takes it: "16x32", "scalar"."""
    return "x".join(map(str, shape)) or "scalar"


def count(number: int, thing: str) -> str:
    """Return "1 case", "2 cases"."""
    return f"{number} {thing}" + ("" if number == 1 else "s")
