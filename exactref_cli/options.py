"""The options of `exactref gradcheck`: what may be typed, and the shapes and values that they give."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import yaml

from exactref_cli import inputs, schema, signature, structure, templates, yaml_lines
from kernels_core.battery import select
from kernels_core.errors import UsageError, nearest
from kernels_core.kernel.modules import MODES
from kernels_core.profiles import AUTO, resolve
from kernels_core.profiles.knobs import WORST_CASE


@dataclasses.dataclass(frozen=True)
class Options:
    """The options as they were typed; see `exactref gradcheck --help`."""

    target: str
    shape: Sequence[str] = ()
    values: Sequence[str] = ()
    dtype: Sequence[str] = ("float32",)
    device: str = "cpu"
    reference: str | None = None
    reference_backward: str | None = None
    seed: int = 0
    profile: str | None = None
    kinks: str = "accept"
    wrt: Sequence[str] = ()
    battery: Sequence[str] = ("all",)
    require_sensitivity: str | None = None
    vary_sizes: bool = False
    mode: str | None = None
    without: Sequence[str] = ()
    nondet_tol: float | None = None
    surrogate: bool = False
    bound: str | None = None
    exhaustive: bool = False


def require_known(options: Options) -> None:
    """Refuse words that are no dtype, profile, item and so on.

    Raises:
        UsageError: names the option and the nearest known word.
    """
    _require_words(options)
    _require_arithmetic(options)
    _require_items(options)


def _require_words(options: Options) -> None:
    asked: list[tuple[str, str, tuple[str, ...]]]
    asked = [("--dtype", dtype, schema.FLOAT_DTYPES) for dtype in options.dtype]
    asked.append(("--kinks", options.kinks, ("accept", "convention")))
    if options.require_sensitivity is not None:
        asked.append(("--require-sensitivity", options.require_sensitivity, schema.NARROWER))
    if options.mode is not None:
        asked.append(("--mode", options.mode, MODES))
    if wrong := inputs.wrong_device(options.device):
        raise UsageError(f"--device: {wrong}")
    for option, word, known in asked:
        if word not in known:
            raise UsageError(f"{option}: wanted one of {', '.join(known)}, found {word!r}{nearest(word, known)}")


def _require_arithmetic(options: Options) -> None:
    try:
        resolve(options.profile or AUTO, options.bound or WORST_CASE)
    except UsageError as error:
        raise UsageError(f"--{error}") from None


def _require_items(options: Options) -> None:
    try:
        select(options.battery)
    except UsageError as error:
        raise UsageError(f"--battery: {error}") from None
    try:
        select(options.without)
    except UsageError as error:
        raise UsageError(f"--without: {error}") from None
    if options.surrogate and options.reference_backward is None:
        raise UsageError("--surrogate: wanted a --reference-backward that is the surrogate, found none")


def given_by(options: Options, found: Sequence[signature.Parameter]) -> templates.Given:
    """Return the shapes, values and families of values that `--shape` and `--values` give, by parameter.

    Raises:
        UsageError: no parameter has the name, or the text cannot be read.
    """
    names = [p.name for p in found]
    sizes = dict(_shape(text, names) for text in options.shape)
    values = dict(_value(text, names) for text in options.values)
    families = {name: value for name, value in values.items() if _is_family(name, value, found)}
    values = {name: value for name, value in values.items() if name not in families}
    both = sorted(set(sizes) & set(values))
    if both:
        raise UsageError(f"{both[0]} has both --shape and --values\nthe values already say its shape")
    return templates.Given(sizes, values, families)


def _is_family(name: str, value: Any, found: Sequence[signature.Parameter]) -> bool:
    """Return True where a word names a family of values, and not the text that a parameter takes.

    Raises:
        UsageError: a tensor is wanted and no family has this name.
    """
    text = any(p.name == name and (isinstance(p.default, str) or p.takes_text) for p in found)
    if text or not isinstance(value, str):
        return False
    if value not in schema.FAMILIES and (near := nearest(value, schema.FAMILIES)):
        raise UsageError(
            f"--values: no family of values is called {value!r}{near}\nknown: {', '.join(schema.FAMILIES)}"
        )
    return value in schema.FAMILIES


def _shape(text: str, names: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    name, sizes = _split(text, names, "--shape", "NAME=AxB, as in A=16x32")
    parts = [] if sizes in ("", "scalar") else sizes.split("x")
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--shape: wanted NAME=AxB, as in A=16x32, found {text!r}")
    return name, tuple(int(part) for part in parts)


def _value(text: str, names: Sequence[str]) -> tuple[str, Any]:
    wanted = "NAME=VALUES, as in x=[-0.5,0.3] or eps=1e-5"
    name, written = _split(text, names, "--values", wanted)
    try:
        value = yaml_lines.parse(written).data
        if isinstance(value, list):
            schema.shape_of_list(value)
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"--values: wanted {wanted}, found {text!r}") from error
    return name, value


def _split(text: str, names: Sequence[str], option: str, wanted: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not equals:
        raise UsageError(f"{option}: wanted {wanted}, found {text!r}")
    found = structure.normal_name(name, names)
    if found is None:
        raise UsageError(f"{option}: no argument is called {name!r}{nearest(name, names)}\nknown: {', '.join(names)}")
    return found, rest
