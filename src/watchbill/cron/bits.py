"""Sets of small numbers, stored as the bits of an integer."""

from __future__ import annotations


def bits(mask: int) -> list[int]:
    """Returns the numbers in the set, in order: those whose bits are set."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def highest(mask: int) -> int:
    return mask.bit_length() - 1
