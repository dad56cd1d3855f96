"""Measurements that are run by hand; their figures are in docs/."""
