"""The accumulator of a tensor core: blocks of products, aligned to their largest exponent and truncated.

One instruction adds N products a_i b_i to an addend c. With E the largest exponent among c and the products (that of a
product is the sum of its operands' exponents, its significand lies in [1, 4); operands below the smallest normal
number of their format count with that number's exponent; zeros do not count):

    1. every product and c are cut after 2^(E - F), toward zero;
    2. the cut terms are added exactly;
    3. the sum is cut to p fraction bits, toward zero, and becomes the c of the next block.

Sources: Khattak and Mikaitis, Accurate Models of NVIDIA Tensor Cores, arXiv 2512.07004 (code and recorded outputs in
north-numerical-computing/MATLAB-tensor-core); Xie et al., MMA-Sim, arXiv 2511.10909 (microsoft/MMA-Sim,
nv_ptx/sim.py: the same N, F and p). The rule reproduces all recorded outputs in tests/core/profiles/data bit for bit.
What such an accumulator grants is derived in rules/block_products.py.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class BlockAccumulator:
    """The numbers of one accumulator.

    Attributes:
        block: N, the products that one instruction adds; all blocks but the last are full.
        fraction_bits: F, kept below the largest exponent.
        output_bits: p, fraction bits of the sum that goes on.
        alone: False where float32 rounded to nearest, in any order, is granted beside it.
        promote: products after which the sum moves to a float32 accumulator and a new one starts at zero; 0 for never.
    """

    block: int
    fraction_bits: int
    output_bits: int
    promote: int = 0
    alone: bool = False
