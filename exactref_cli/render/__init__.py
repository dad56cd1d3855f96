"""Reports for people and for machines; the only place that imports Rich."""
