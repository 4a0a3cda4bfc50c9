"""Which rows of a packed batch a program has, if all of them are to be of one sequence."""

import triton
import triton.language as tl


@triton.jit
def locate(offsets, slot, sequences, BLOCK: tl.constexpr):
    """The number of the sequence of a slot, its first row, its length, and where the tile starts.

    Sequence s has the slots from offsets[s] // BLOCK + s to offsets[s + 1] // BLOCK + s, both
    included: enough for its tiles, and at most one too many, which starts past its end. That needs
    no sums over the sequences before, and the number of slots is known without their lengths.
    """
    low = 0
    high = sequences
    while high - low > 1:
        middle = (low + high) // 2
        first = tl.load(offsets + middle).to(tl.int32) // BLOCK + middle
        if first <= slot:
            low = middle
        else:
            high = middle
    begin = tl.load(offsets + low).to(tl.int32)
    end = tl.load(offsets + low + 1).to(tl.int32)
    return low, begin, end - begin, (slot - begin // BLOCK - low) * BLOCK
