"""The profiles by name."""

from __future__ import annotations

from collections.abc import Mapping

from kernels_core.profiles.amx import AMX
from kernels_core.profiles.cuda import CUDA
from kernels_core.profiles.fp8 import FAST, PROMOTED
from kernels_core.profiles.ieee import IEEE
from kernels_core.profiles.profile import Profile
from kernels_core.profiles.tensorcore import AMPERE, HOPPER, VOLTA
from kernels_core.profiles.tf32 import TF32
from kernels_core.profiles.triton import TRITON

PROFILES: Mapping[str, Profile] = {
    profile.name: profile for profile in (IEEE, CUDA, TRITON, TF32, VOLTA, AMPERE, HOPPER, FAST, PROMOTED, AMX)
}
