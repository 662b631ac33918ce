"""All hazard cases, and what is known of them on executorch 1.5.1 with torch 2.13.0."""

from __future__ import annotations

from copyproof.spec.pipeline import Stage

from . import alias_cases, branch_cases, copy_cases
from .example import Example

CASES: tuple[Example, ...] = tuple(
    value
    for part in (copy_cases, alias_cases, branch_cases)
    for value in vars(part).values()
    if isinstance(value, Example)
)
"""Small stateful modules, most of them the shape of a public report."""

_TWO_TARGETS = "is not in the correct order; one node is the new value of two targets"
_NOT_FUNCTIONAL = "AssertionError: expected compiled_fn to be GraphModule"

DOES_NOT_REACH: dict[str, str] = {
    "lineage_wrong_buffer": f"SpecViolationError: User output index_put {_TWO_TARGETS}",
    "lineage_wrong_buffer2": f"SpecViolationError: User output index_put {_TWO_TARGETS}",
    "two_buffers_same_node": f"SpecViolationError: User output add {_TWO_TARGETS}",
    "overlap_unfold_abs": "RuntimeError: While executing unfold, functionalization encountered a tensor "
    "being mutated; what is written overlaps itself",
    "diagonal_as_strided": "RuntimeError: During torch.compile, encountered a mutation on a view chain; "
    "as_strided of a view cannot be made functional",
    "tied_buffers": f"{_NOT_FUNCTIONAL}; to_edge does not take two buffers that are one tensor",
    "overlapping_buffers": f"{_NOT_FUNCTIONAL}; to_edge does not take two buffers that overlap",
    "cond_mutates_buffer": "SpecViolationError: operator 'aten.copy_.default' is not functional; "
    "a branch writes a buffer",
}
"""Cases that never come to the write-back pass: how the error of `to_edge` starts, then the reason."""

NOT_IN_RUNTIME: dict[str, str] = {
    "dtype_view_read": "the runtime has no kernel for aten::view_copy.dtype_out, the method does not load",
    "while_loop_state": "the emitter of to_executorch does not know while_loop",
}
"""Cases that come to the write-back pass but not to a program that the runtime loads, with the reason."""

_LOST = "the write is lost: the new value is another buffer's placeholder, taken for a write already in place"

SHIPPED_WRONG: dict[str, str] = {
    "swap_pair": _LOST,
    "rotate_three": _LOST,
    "pingpong_pure": _LOST,
    "reset_from_constant": _LOST,
    "full_slice_then_bump": _LOST,
    "delay_line": _LOST,
    "value_view_other_buffer": "the copies at the end run in output order: b reads a through a view after "
    "a was written",
    "old_kept_by_cast": "what is returned is the buffer itself, which the copy at the end overwrites",
}
"""Examples that the shipped pass gives wrong results in the runtime, with the reason."""

PIPELINE_WRONG: dict[str, tuple[Stage, str]] = {
    "cond_two_alive": (Stage.PLAN, "the planner lays the second branch's insides over the first one's result"),
    "init_like_a_constant": (
        Stage.FILE,
        "a named buffer that starts like a constant is given the constant's index among the first contents of buffers",
    ),
}
"""Cases whose results in the runtime are wrong whatever the write-back pass does: the stage at fault, the reason."""
