"""Sizes and offsets as Z3 integers, and what they say about two regions: the same, disjoint, or overlapping.

Symbolic sizes range over what the export allows. Each answer is an `unsat`; where the solver cannot tell, the answer
is `OVERLAPPING`, which assumes least.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

import sympy
import z3
from torch.fx.experimental.validator import SympyToZ3, TranslationValidator

from copyproof.spec.program import Region, Size

Ranges = tuple[tuple[str, int | None, int | None], ...]
"""Name, lower and upper bound of each symbol of the export."""

_TIMEOUT_MS = 2000


class Relation(Enum):
    """How two regions of one storage lie to each other."""

    SAME = "the same elements in the same order"
    DISJOINT = "no element in common"
    OVERLAPPING = "elements in common, as far as is known"


@cache
def relation(a: Region, b: Region, ranges: Ranges) -> Relation:
    """How `a` and `b`, regions of one storage, lie to each other for every size within `ranges`.

    SAME is claimed only for regions that do not overlap themselves.
    """
    if a == b:
        return Relation.SAME if not overlaps_itself(a, ranges) else Relation.OVERLAPPING
    if _proved(ranges, lambda env: [_meets(env, a, b)]):
        return Relation.DISJOINT
    alike = len(a.sizes) == len(b.sizes) and (a.itemsize, a.dtype) == (b.itemsize, b.dtype)
    if alike and not overlaps_itself(a, ranges):
        pairs = [
            (a.offset, b.offset),
            *zip(a.sizes, b.sizes, strict=True),
            *zip(a.strides, b.strides, strict=True),
        ]
        if _proved(ranges, lambda env: [z3.Or([env.term(x) != env.term(y) for x, y in pairs])]):
            return Relation.SAME
    return Relation.OVERLAPPING


@cache
def overlaps_itself(region: Region, ranges: Ranges) -> bool:
    """Whether two different index tuples of `region` may name the same byte (an expanded or unfolded tensor)."""
    # Strides that each step over everything the smaller ones reach: no overlap, and no solver needed.
    dims = list(zip(region.sizes, region.strides, strict=True))
    if all(isinstance(x, int) for pair in dims for x in pair):
        reach = region.itemsize
        for size, stride in sorted(dims, key=lambda d: d[1]):
            if stride < reach:
                break
            reach += (size - 1) * stride
        else:
            return False
    elif len(dims) == 1 and dims[0][1] == region.itemsize:
        return False

    def clash(env: _Integers) -> list[z3.BoolRef]:
        i, in_i = env.indices(region)
        j, in_j = env.indices(region)
        differ = z3.Or([x != y for x, y in zip(i, j, strict=True)])
        return [in_i, in_j, differ, *_byte_meets(env, region, i, region, j)]

    return not _proved(ranges, clash)


def _meets(env: _Integers, a: Region, b: Region) -> z3.BoolRef:
    i, in_i = env.indices(a)
    j, in_j = env.indices(b)
    return z3.And(in_i, in_j, *_byte_meets(env, a, i, b, j))


def _byte_meets(env: _Integers, a: Region, i: list[z3.ArithRef], b: Region, j: list[z3.ArithRef]) -> list[z3.BoolRef]:
    """The element `i` of `a` and the element `j` of `b` have a byte in common."""
    first, second = env.address(a, i), env.address(b, j)
    return [first < second + b.itemsize, second < first + a.itemsize]


class _Integers:
    """Z3 integers for the symbols of the export, within their ranges."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = {name: (lower, upper) for name, lower, upper in ranges}
        self.translator = TranslationValidator()
        self.seen: dict[str, z3.ArithRef] = {}
        self.bounds: list[z3.BoolRef] = []
        self.count = 0

    def term(self, size: Size) -> z3.ArithRef:
        if isinstance(size, int):
            return z3.IntVal(size)
        for symbol in size.free_symbols:
            if str(symbol) not in self.seen:
                self.seen[str(symbol)] = self.translator.add_var(symbol, int)
                lower, upper = self.ranges.get(str(symbol), (None, None))
                if lower is not None:
                    self.bounds.append(self.translator.z3var(symbol) >= lower)
                if upper is not None:
                    self.bounds.append(self.translator.z3var(symbol) <= upper)
        return SympyToZ3(self.translator).run(size)

    def indices(self, region: Region) -> tuple[list[z3.ArithRef], z3.BoolRef]:
        """An element of `region`: its index in each dimension, and that it is in bounds."""
        found = []
        inside = [z3.BoolVal(True)]
        for size in region.sizes:
            self.count += 1
            index = z3.Int(f"i{self.count}")
            found.append(index)
            inside += [index >= 0, index < self.term(size)]
        return found, z3.And(inside)

    def address(self, region: Region, index: list[z3.ArithRef]) -> z3.ArithRef:
        total = self.term(region.offset)
        for i, stride in zip(index, region.strides, strict=True):
            total = total + i * self.term(stride)
        return total


def _proved(ranges: Ranges, negation: object) -> bool:
    """Whether the assertions that `negation(env)` gives cannot hold together."""
    env = _Integers(ranges)
    solver = z3.Solver()
    solver.set("timeout", _TIMEOUT_MS)
    try:
        solver.add(*negation(env))  # type: ignore[operator]
    except (NotImplementedError, AttributeError, KeyError, TypeError, z3.Z3Exception, AssertionError):
        return False
    solver.add(*env.bounds)
    return solver.check() == z3.unsat


def at_most(less: Size, more: Size, ranges: Ranges) -> bool:
    """Whether `less <= more` for every size within `ranges`."""
    if isinstance(less, int) and isinstance(more, int):
        return less <= more
    return _proved(ranges, lambda env: [env.term(sympy.sympify(less)) > env.term(sympy.sympify(more))])
