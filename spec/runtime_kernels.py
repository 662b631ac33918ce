"""Kernels of ExecuTorch's runtime that accept less than their operator means: what they refuse stops the method.

Source: `kernels/portable/cpu/op_index_put.cpp` and `op_copy.cpp` of executorch 1.5.1; `index_put_` and `copy_` are the
in-place kernels that the runtime has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from copyproof.spec.program import TensorType

_COPIES = ("aten.copy_.default", "aten.copy.out")


def refused(name: str, types: Sequence[TensorType | None], arguments: Sequence[Any]) -> str:
    """Why the runtime's kernel refuses a call; empty where it does not.

    Args:
        name: the operator's canonical name.
        types: the types of the tensors among the arguments, in order.
        arguments: by the operator's schema, tensors as `Ellipsis`.
    """
    if name in _COPIES and len(arguments) > 2 and arguments[2] is True:
        return "a copy of the runtime does not take non_blocking=True"
    if name != "aten.index_put_.default":
        return ""
    given = [i for i, index in enumerate(arguments[1]) if index is not None]
    if len(arguments) > 3 and arguments[3]:
        return "index_put_ of the runtime does not accumulate"
    if len(given) != 1:
        return f"index_put_ of the runtime takes 1 index tensor, and is given {len(given)}"
    into, index, values = types
    if into is None or index is None or values is None:
        return ""
    if len(index.shape) != 1 or index.dtype not in ("int64", "int32"):
        return f"index_put_ of the runtime takes an index of 1 dimension, and is given {index.spelled}"
    wanted = tuple(index.shape[0] if d == given[0] else size for d, size in enumerate(into.shape))
    if values.shape != wanted:
        return f"index_put_ of the runtime takes values of the shape {list(wanted)}, and is given {values.spelled}"
    return ""
