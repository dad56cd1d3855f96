"""The values that a kernel is given: families that show faults, and all values of a small format."""
