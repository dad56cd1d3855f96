"""The engine: programs, bounds, exact evaluation and the decision. No user interface, no output."""
