"""Masks as sets of small numbers."""

from __future__ import annotations


def bits(mask: int) -> list[int]:
    """The numbers of the set bits, in order."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def highest(mask: int) -> int:
    return mask.bit_length() - 1
