"""The table of effects: what an operator reads, writes and aliases, and what contents its results have.

Sources, in order: the operator's schema (`alias_info`: views, in-place writes, mutable custom operators), then the
lowering profile (which functional operators a later stage turns into aliases). What neither knows is conservative,
and says so in `Effect.approximation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch


class Chain(Enum):
    """Effects that must keep their order among themselves."""

    RANDOM = "random numbers"
    ORDERED = "opaque side effects"


class Contents(Enum):
    """What the contents of a result are."""

    FUNCTION = "an uninterpreted function of the operator, its attributes and the operands' contents"
    FIRST = "the first operand's contents, where shapes and types agree (clone, view_copy)"
    SECOND = "the second operand's contents, where shapes and types agree, else cast and broadcast (copy)"


@dataclass(frozen=True)
class Effect:
    """The effect of one operator, by argument and return position.

    Attributes:
        writes: arguments whose regions the operator writes.
        aliases: pairs (return, argument): the return is a region of the argument's storage.
        chain: the chain of effects that the operator takes part in, if any.
        contents: what the results (and what is written) contain.
        maybe: the aliases may or may not be there (`reshape`, `contiguous`, an unknown operator).
        approximation: what is assumed rather than known about the operator; None where its schema says all.
        opaque: why the operator has no model at all, or None.
        only_in_training: some of its writes are to running statistics, which a call with `training=False` leaves.
    """

    writes: tuple[int, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    chain: Chain | None = None
    contents: Contents = Contents.FUNCTION
    maybe: bool = False
    approximation: str | None = None
    opaque: str | None = None
    only_in_training: bool = False


@dataclass(frozen=True)
class Profile:
    """A lowering profile: the operators that a later stage turns from a fresh tensor into an alias.

    Attributes:
        name: for reports.
        views: canonical operator names (`aten.view_copy.default`) whose result becomes an alias of argument 0, all
            of it in the same order. A result that is itself a graph output stays a copy, and a view of such a view is
            re-based on the first one's base, as ExecuTorch's `NormalizeViewCopyBasePass` and
            `ReplaceViewCopyWithViewPass` do.
    """

    name: str
    views: frozenset[str]


EXECUTORCH = Profile("executorch", frozenset({"aten.view_copy.default"}))
"""`remove_view_copy=True`, the default: `view_copy` becomes `memory.view` (exir/passes/
replace_view_copy_with_view_pass.py, executorch 1.5.1)."""

NO_LOWERING = Profile("none", frozenset())
"""Nothing is turned into an alias: schemas say all."""

_COPIES_FIRST = frozenset(
    {
        "aten.clone",
        "aten.view_copy",
        "aten._unsafe_view",
        "aten.unsqueeze_copy",
        "aten.squeeze_copy",
        "aten.alias_copy",
        "aten.detach_copy",
        "aten.lift_fresh_copy",
        "aten._to_copy",
        "aten._reshape_copy",
        "dim_order_ops._clone_dim_order",
        "dim_order_ops._to_dim_order_copy",
    }
)
_SAME_ORDER = frozenset(
    {
        "aten.view",
        "aten.view_copy",
        "aten._unsafe_view",
        "aten.unsqueeze",
        "aten.unsqueeze_copy",
        "aten.squeeze",
        "aten.squeeze_copy",
        "aten.alias",
        "aten.alias_copy",
        "aten.detach",
        "aten.detach_copy",
        "aten._reshape_copy",
    }
)
_SHAPE_ONLY = frozenset({"aten.sym_size", "aten.sym_stride", "aten.sym_numel", "aten.sym_storage_offset"})
_COPIES_SECOND = frozenset({"aten.copy", "aten.copy_"})
_MAY_ALIAS = frozenset(
    {
        "aten.reshape",
        "aten.reshape_as",
        "aten.contiguous",
        "aten.to",
        "aten.flatten",
        "aten.ravel",
        "aten.lift_fresh",
        "aten.type_as",
        "aten.resolve_conj",
        "aten.resolve_neg",
        "aten._reshape_alias",
        "aten.pin_memory",
        "aten.lift",
        "aten._fw_primal",
        "prims.device_put",
        "aten._unsafe_view",
        "aten.unsafe_split",
        "aten.unsafe_split_with_sizes",
        "aten.unsafe_chunk",
    }
)
_FRESH_COMPOSITES = frozenset(
    {
        "aten.linear",
        "aten.matmul",
        "aten.conv1d",
        "aten.conv2d",
        "aten.conv3d",
        "aten.layer_norm",
        "aten.rms_norm",
        "aten.group_norm",
        "aten.scaled_dot_product_attention",
        "aten.where",
        "aten.sym_size",
        "aten.sym_numel",
        "aten.sym_stride",
        "dim_order_ops._clone_dim_order",
        "dim_order_ops._to_dim_order_copy",
        "dim_order_ops._empty_dim_order",
    }
)
"""Composite operators that always return a fresh tensor. Any other one may hand back its argument, as `dropout` does
outside training, though its schema does not say so."""
_ASSERTIONS = frozenset(
    {
        "aten._assert_async",
        "aten._assert_scalar",
        "aten._assert_tensor_metadata",
        "aten.sym_constrain_range",
        "aten.sym_constrain_range_for_size",
        "aten._print",
        "aten._functional_assert_async",
        "aten._functional_assert_scalar",
    }
)
_UNINITIALISED = frozenset(
    {
        "aten.empty",
        "aten.empty_like",
        "aten.new_empty",
        "aten.empty_strided",
        "aten.new_empty_strided",
        "aten.empty_permuted",
        "aten.empty_quantized",
        "aten._empty_affine_quantized",
        "aten._empty_per_channel_affine_quantized",
        "aten.resize",
        "aten.resize_as",
        "aten._resize_output",
        "prims.empty",
        "prims.empty_strided",
        "prims.empty_permuted",
        "dim_order_ops._empty_dim_order",
    }
)
_READS_AROUND = frozenset({"aten.as_strided_copy", "aten.set"})
_CARRIES_AROUND = frozenset(
    {"aten.select_scatter", "aten.slice_scatter", "aten.diagonal_scatter", "aten.as_strided_scatter"}
)
_KNOWN_NAMESPACES = frozenset({"aten", "prims", "prim", "dim_order_ops", "quantized_decomposed"})


@cache
def argument_names(operator: torch._ops.OpOverload) -> tuple[str, ...]:
    """What an operator's arguments are called, in the order of its schema."""
    return tuple(argument.name for argument in operator._schema.arguments)


@cache
def canonical(operator: torch._ops.OpOverload) -> str:
    """`namespace.name.overload`, the same for an ATen operator and for its Edge form."""
    name = operator._schema.name.replace("::", ".")
    return f"{name}.{operator._schema.overload_name or 'default'}"


def family(name: str) -> str:
    """A canonical name without its overload."""
    return name.rsplit(".", 1)[0]


def same_order(name: str) -> bool:
    """Whether the result of the operator of this canonical name holds just the elements of its first operand, in the
    same row-major order, whatever its shape."""
    return family(name) in _SAME_ORDER and not name.endswith(".dtype")


def reads_contents(name: str) -> bool:
    """Whether the operator of this canonical name looks at its operands' elements, and not at their shapes alone."""
    return family(name) not in _SHAPE_ONLY


def only_asserts(name: str) -> bool:
    """Whether the operator of this canonical name only checks something, and computes nothing."""
    return family(name) in _ASSERTIONS and family(name) != "aten._print"


def reads_around(name: str) -> bool:
    """Whether the operator of this canonical name may read memory around its operand: the storage that this is a view
    of."""
    return family(name) in _READS_AROUND


def carries_around(name: str) -> bool:
    """Whether the result of the operator of this canonical name has, in memory around it, what is around its operand:
    it clones the storage that this is a view of."""
    return family(name) in _CARRIES_AROUND


def uninitialised(name: str) -> bool:
    """Whether the operator of this canonical name returns whatever the memory held: no two calls need agree."""
    return family(name) in _UNINITIALISED


@cache
def effect_of(operator: torch._ops.OpOverload) -> Effect:
    """The effect of `operator` (an ATen or custom OpOverload; unwrap Edge operators first), by its schema.

    The lowering profile is applied by whoever asks, since it depends on where the result is used.
    """
    schema: Any = operator._schema
    name = canonical(operator)
    writes = tuple(i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
    statistics = _running_statistics(name, schema)
    writes = tuple(sorted({*writes, *statistics}))
    aliases = []
    for r, returned in enumerate(schema.returns):
        if returned.alias_info is None:
            continue
        # The alias set of a list stands on its elements, and is empty here: any annotated argument may be meant.
        sets = returned.alias_info.before_set | returned.alias_info.after_set or {"*"}
        for i, argument in enumerate(schema.arguments):
            info = argument.alias_info
            if info is not None and ("*" in sets or sets & (info.before_set | info.after_set)):
                aliases.append((r, i))
    maybe = family(name) in _MAY_ALIAS
    if not aliases and not writes and schema.returns and family(name) not in _FRESH_COMPOSITES:
        maybe = maybe or torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
    contents = Contents.FUNCTION
    if family(name) in _COPIES_FIRST:
        contents = Contents.FIRST
    elif family(name) in _COPIES_SECOND:
        contents = Contents.SECOND
    chain = None
    if torch.Tag.nondeterministic_seeded in operator.tags:
        chain = Chain.RANDOM
    elif family(name) in _ASSERTIONS or (not schema.returns and not writes):
        chain = Chain.ORDERED
    approximation = None
    if operator.namespace not in _KNOWN_NAMESPACES:
        approximation = f"{name} does just what its schema says, and is a function of its arguments"
    opaque = None
    if torch.Tag.inplace_view in operator.tags:
        opaque = f"{name} changes the shape or the storage of its operand in place"
    return Effect(writes, tuple(aliases), chain, contents, maybe, approximation, opaque, bool(statistics))


def _running_statistics(name: str, schema: Any) -> tuple[int, ...]:
    """Arguments that hold running statistics, which normalisation in training writes though its schema does not say
    so (`native_batch_norm`, `batch_norm_update_stats`)."""
    base = family(name)
    if "functional" in base or "no_training" in base or "backward" in base or base.endswith("_elemt"):
        return ()
    return tuple(
        i
        for i, argument in enumerate(schema.arguments)
        if argument.name in ("running_mean", "running_var") and argument.alias_info is None
    )


def functional_name(name: str) -> str:
    """The canonical name of the functional variant of an in-place operator (`aten.add_.Tensor` to
    `aten.add.Tensor`); other names unchanged. The two compute the same contents, by PyTorch's naming rule for
    in-place variants (torchgen `SchemaKind.inplace`)."""
    if name.count(".") < 2:
        return name
    head, overload = name.rsplit(".", 1)
    namespace, base = head.split(".", 1)
    if base.endswith("_") and not base.endswith("__") and namespace in ("aten", "prims"):
        return f"{namespace}.{base[:-1]}.{overload}"
    return name
