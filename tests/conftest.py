"""One thread per worker, and how many examples a property is tried on."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, below here; subprocesses inherit it

from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))
