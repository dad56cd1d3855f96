"""Profiles as users write them: a name, a name with knobs, or a mapping.

    tf32
    tf32,accumulate=float16,split_k=4,order=blocked:32
    {name: triton, function_ulp: {exp: 4}}

Knobs of any profile:

    accumulate        float32, float16 or bfloat16: the format of the running sums of sums, means, matrix products,
                      convolutions, softmax and norms. Each term is rounded as it enters and each sum after its addition
    split_k           a whole number: parts of a matrix product's inner dimension, each rounded to the result's format
    flush_subnormals  true or false: subnormal operands, results and partial sums may be taken for zero
    function_ulp      a number for all elementary functions but division, or a mapping from function to ulp
    matmul_input      tf32, bfloat16 or float16: operands of matrix products and convolutions may be read in this format
    order             any, sequential (in the order of the index, from either end), pairwise or blocked:n, of the
                      additions in sums and products; for a truncating accumulator blocked:n says how many products one
                      instruction adds
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from kernels_core.errors import UsageError, nearest
from kernels_core.profiles.choice import pick
from kernels_core.profiles.named import PROFILES
from kernels_core.profiles.profile import KNOBS, Profile

ACCUMULATORS = ("float32", "float16", "bfloat16")
INPUTS = ("tf32", "bfloat16", "float16")
ORDERS = ("any", "sequential", "pairwise", "blocked:n")
WORST_CASE, PROBABILISTIC = BOUNDS = ("worst-case", "probabilistic")
AUTO = "auto"

Given = str | Profile | Mapping[str, Any]


def resolve(
    given: Given,
    bound: str = WORST_CASE,
    device: torch.device | None = None,
    dtypes: Collection[torch.dtype] = (),
) -> Profile:
    """Return the profile that a user means, with its knobs.

    Args:
        given: a name, a text or mapping with knobs, or a profile; "auto" picks one (choice.py).
        bound: "worst-case" or "probabilistic".
        device: of the inputs, for "auto"; the CPU if none.
        dtypes: of the inputs, for "auto".

    Raises:
        UsageError: an unknown name, knob or value, or a probabilistic bound for a truncating accumulator.
    """
    if not isinstance(given, (str, Mapping, Profile)):
        raise UsageError(f"profile: wanted a name, a mapping of knobs or a Profile, found {given!r}")
    profile = given if isinstance(given, Profile) else _named(given, device or torch.device("cpu"), dtypes)
    if bound not in BOUNDS:
        raise UsageError(f"bound: wanted one of {', '.join(BOUNDS)}, found {bound!r}{nearest(str(bound), BOUNDS)}")
    if bound == WORST_CASE:
        return profile
    if profile.blocks:
        raise UsageError(
            f"bound: probabilistic is refused for the profile {profile.name}, whose accumulators truncate: "
            "their errors all have one sign and grow with n, not with its root\nuse bound: worst-case"
        )
    return dataclasses.replace(profile, bound=bound)


def _named(given: str | Mapping[str, Any], device: torch.device, dtypes: Collection[torch.dtype]) -> Profile:
    asked = _of_text(given) if isinstance(given, str) else dict(given)
    name = asked.pop("name", AUTO)
    if not isinstance(name, str) or name not in (*PROFILES, AUTO):
        near = nearest(name, (*PROFILES, AUTO)) if isinstance(name, str) else ""
        raise UsageError(f"profile: wanted one of {', '.join(PROFILES)} or {AUTO}, found {name!r}{near}")
    for knob in asked:
        if knob not in KNOBS:
            raise UsageError(
                f"profile: no knob is called {knob!r}{nearest(str(knob), KNOBS)}\nknown: {', '.join(KNOBS)}"
            )
    profile = pick(device, dtypes) if name == AUTO else PROFILES[name]
    own = tuple(knob for knob in profile.own if knob not in asked)
    return dataclasses.replace(profile, own=own, **{knob: _CHECKS[knob](value) for knob, value in asked.items()})


def _of_text(text: str) -> dict[str, Any]:
    """Return the mapping of "name,knob=value,..."; a knob of function_ulp is written function_ulp=exp:4;log:2."""
    name, *knobs = (part.strip() for part in text.split(","))
    found: dict[str, Any] = {"name": name}
    for part in knobs:
        knob, equals, value = part.partition("=")
        if not equals or not value:
            raise UsageError(f"profile: wanted NAME,KNOB=VALUE,..., found {text!r}\nknobs: {', '.join(KNOBS)}")
        if knob in found:
            raise UsageError(f"profile: {knob} is given twice in {text!r}")
        found[knob] = _read(knob, value)
    return found


def _read(knob: str, text: str) -> Any:
    if knob == "function_ulp" and ":" in text:
        pairs = (pair.partition(":") for pair in text.split(";"))
        return {function: _number(value) for function, _, value in pairs}
    if text in ("true", "false"):
        return text == "true"
    return _number(text)


def _number(text: str) -> Any:
    try:
        return int(text) if re.fullmatch(r"\d+", text) else float(text)
    except ValueError:
        return text


def _refuse(knob: str, wanted: str, found: Any, known: tuple[str, ...] = ()) -> UsageError:
    near = nearest(found, known) if isinstance(found, str) else ""
    return UsageError(f"profile: {knob}: wanted {wanted}, found {found!r}{near}")


def _one_of(knob: str, known: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in known:
            raise _refuse(knob, f"one of {', '.join(known)}", value, known)
        return str(value)

    return check


def _parts(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _refuse("split_k", "a number of parts, 1 or more", value)
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse("flush_subnormals", "true or false", value)
    return value


def _order(value: Any) -> str:
    if value in ORDERS[:-1] or (isinstance(value, str) and re.fullmatch(r"blocked:[1-9]\d*", value)):
        return str(value)
    raise _refuse("order", f"one of {', '.join(ORDERS)} (as in blocked:32)", value, ORDERS)


def _accuracies(value: Any) -> Mapping[str, float]:
    known = tuple(PROFILES["ieee"].ulp_table)
    given = value if isinstance(value, Mapping) else {"all": value}
    for function, ulp in given.items():
        if function != "all" and function not in known:
            raise _refuse("function_ulp", f"one of {', '.join(known)}", function, known)
        if not isinstance(ulp, (int, float)) or isinstance(ulp, bool) or not 0 <= ulp < math.inf:
            raise _refuse("function_ulp", "a number of ulp, 0 or more", ulp)
    return {str(function): float(ulp) for function, ulp in given.items()}


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "accumulate": _one_of("accumulate", ACCUMULATORS),
    "split_k": _parts,
    "flush_subnormals": _flag,
    "function_ulp": _accuracies,
    "matmul_input": _one_of("matmul_input", INPUTS),
    "order": _order,
}
