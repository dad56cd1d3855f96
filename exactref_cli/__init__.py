"""The command line: loads targets and specs, runs the engine case by case, renders what it found. No numerics."""
