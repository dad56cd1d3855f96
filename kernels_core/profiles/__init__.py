"""Arithmetic profiles: what a kernel may do beyond the dtypes of its reference, by name.

Each profile has a file with its derivation and its source; named.py lists them, knobs.py reads names and knobs as users
write them, and choice.py picks a profile where nobody names one.
"""

from __future__ import annotations

from kernels_core.profiles.choice import pick
from kernels_core.profiles.knobs import AUTO, resolve
from kernels_core.profiles.named import PROFILES
from kernels_core.profiles.profile import KNOBS, Profile

__all__ = ["AUTO", "KNOBS", "PROFILES", "Profile", "pick", "resolve"]
