"""The few computations that must be fast or small, each in a file of its own.

Beside every kernel stands its plain-torch twin, `..._plain`: the same signature and, but for
rounding, the same result, written for the reader. A test holds the two together.
"""
