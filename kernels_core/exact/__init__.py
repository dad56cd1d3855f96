"""The exact tier: what float64 leaves undecided, in FLINT."""
