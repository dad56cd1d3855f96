"""The filter: one float64 evaluation of a program, with a bound beside every value, tile by tile."""
