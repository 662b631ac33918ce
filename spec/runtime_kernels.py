"""Where kernels of ExecuTorch's runtime depart from what their operators mean: what they refuse, which stops the
method, and what they misread or compute otherwise.

Source: `kernels/portable/cpu/op_index_put.cpp` and `op_copy.cpp` of executorch 1.5.1; `index_put_` and `copy_` are the
in-place kernels that the runtime has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from copyproof.spec.program import TensorType

_COPIES = ("aten.copy_.default", "aten.copy.out")

_ANY_ORDER = frozenset(
    {
        "dim_order_ops._clone_dim_order",
        "dim_order_ops._to_dim_order_copy",
        "aten.convolution",
        "aten.max_pool2d_with_indices",
        "aten.upsample_nearest2d",
    }
)
_PRODUCTS = frozenset({"mm", "bmm", "addmm", "linear"})


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


def misread(name: str, elementwise: bool, kinds: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> str:
    """Why the runtime's kernel may refuse or misread its tensors for how they lie in memory; empty where it is known
    that it takes them. Found by running kernels on channels-last tensors: most stop the method, or go over the bytes as
    if they lay in the usual order (`cat`, `flip`, `gather`, `constant_pad_nd`, `slice_scatter`, `native_layer_norm`).

    Args:
        name: the operator's canonical name.
        elementwise: whether an element of the result depends on the same element of each operand alone.
        kinds: the shape of each tensor among the arguments, and the order of its dimensions in memory.
    """
    odd = [order for _, order in kinds if list(order) != sorted(order)]
    if name.startswith("aten.convolution.") and odd and list(kinds[0][1]) == sorted(kinds[0][1]):
        return f"the runtime's kernel of {name} refuses a weight in the order {odd[0]} beside an input in the usual one"
    if not odd or name.rsplit(".", 1)[0] in _ANY_ORDER or (elementwise and len(set(kinds)) == 1):
        return ""
    return f"the runtime's kernel of {name} may refuse or misread a tensor whose dimensions lie in the order {odd[0]}"


def strays(name: str, types: Sequence[TensorType | None]) -> str:
    """Why the runtime's kernel may compute something else than its operator means in PyTorch; empty where none is known
    to. Found by running.

    Args:
        name: the operator's canonical name.
        types: the types of its tensors.
    """
    if name.split(".")[1] in _PRODUCTS and any(t is not None and 0 in t.shape for t in types):
        return f"the runtime's kernel of {name} leaves its result as it was where there is nothing to add up"
    if name.startswith("aten._log_softmax.") and any(t is not None and t.dtype == "float64" for t in types):
        return "the runtime's kernel of log_softmax refuses float64"
    return ""


def presumed(name: str, types: Sequence[TensorType]) -> str:
    """What must hold of the contents of a call's operands, where the runtime's kernel means what its operator does for
    some contents only; empty where none is known to. Found by running.

    Args:
        name: the kernel's name, as files have it: `aten::remainder`.
        types: the types of its tensors.
    """
    base = name.partition("::")[2]
    if base == "index_put_":
        return "no index of index_put_ is negative: the runtime's kernel stops on one"
    if base in ("remainder", "mod") and not any("float" in t.dtype for t in types):
        return (
            "remainders of integers are taken of and by numbers of one sign: the runtime gives them the dividend's, "
            "PyTorch the divisor's"
        )
    return ""


def reshaped(name: str, shape: tuple[int, ...], arguments: Sequence[Any]) -> tuple[int, ...]:
    """The shape that an operator gives which keeps its first operand's elements in order; a result of another fixed
    shape is refused.

    Args:
        name: the operator's canonical name.
        shape: its first operand's.
        arguments: by the operator's schema, tensors as `Ellipsis`.
    """
    base = name.split(".")[1]
    if base in ("view_copy", "view", "_unsafe_view") and isinstance(arguments[1], list):
        sizes = [size if isinstance(size, int) else -1 for size in arguments[1]]
        known = math.prod(size for size in sizes if size != -1)
        rest = math.prod(shape) // known if known else 0
        return tuple(rest if size == -1 else size for size in sizes)
    if base == "unsqueeze_copy" and isinstance(arguments[1], int):
        at = arguments[1] % (len(shape) + 1)
        return (*shape[:at], 1, *shape[at:])
    if base == "squeeze_copy" and len(arguments) > 1:
        given = arguments[1] if isinstance(arguments[1], list) else [arguments[1]]
        dropped = {d % max(1, len(shape)) for d in given if isinstance(d, int)}
        return tuple(size for d, size in enumerate(shape) if d not in dropped or size != 1)
    return shape
