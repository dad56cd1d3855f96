"""Double-double numbers: float64 programs evaluated to about a hundred bits, with a radius for every element.

error_free.py   the rounding error of a float64 operation
number.py       hi + lo, and rad
arithmetic.py   + - * / sqrt
exact_sums.py   sums and matrix products by exact splitting
order.py        comparisons and choices
taylor.py       functions from tables
functions.py    exp, log, sin, erf, ...
normal.py       the normal distribution
"""
