"""The table of effects against reality: operators run on real tensors, storages and contents compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from copyproof.spec.effects import Chain, Contents, canonical, effect_of, functional_name, same_order, uninitialised

_SAMPLES = 6
# These need devices, files or processes that are not there, or take minutes.
_LEFT_OUT = ("sparse", "nested", "jagged", "cuda", "distributed", "special.", "linalg.", "signal.", "fft.")


class _Checked(TorchDispatchMode):
    """Compares each call with the table, and gathers what does not agree."""

    def __init__(self, found: set[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return checked(function, args, kwargs or {}, self.found)


def checked(function: Any, args: Any, kwargs: Any, found: set[str]) -> Any:
    """Calls an operator, and notes in `found` where it does not do what the table says."""
    if not isinstance(function, torch._ops.OpOverload):
        return function(*args, **kwargs)
    effect = effect_of(function)
    arguments = []
    for index, argument in enumerate(function._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        arguments.append([t for t in pytree.tree_leaves(value) if _is_plain(t)])
    before = [[t.clone() for t in tensors] for tensors in arguments]
    pointers = [{_pointer(t) for t in tensors if t.numel()} for tensors in arguments]
    result = function(*args, **kwargs)
    returned = result if isinstance(result, tuple) else (result,)
    name = canonical(function)
    for index, tensors in enumerate(arguments):
        changed = any(not _same(a, b) for a, b in zip(before[index], tensors, strict=True))
        if changed and index not in effect.writes:
            found.add(f"{name} writes argument {index}")
    for number, item in enumerate(returned):
        for tensor in pytree.tree_leaves(item):
            if not _is_plain(tensor) or not tensor.numel():
                continue
            for index, known in enumerate(pointers):
                own = any(_pointer(tensor) in pointers[i] for r, i in effect.aliases if r == number)
                declared = own or effect.maybe
                if _pointer(tensor) in known and not declared:
                    found.add(f"{name} returns an alias of argument {index}")
                if _pointer(tensor) not in known and (number, index) in effect.aliases and known and not effect.maybe:
                    found.add(f"{name} returns no alias of argument {index}")
    if effect.contents is Contents.FIRST and not effect.writes and _is_plain(returned[0]) and arguments[0]:
        first = arguments[0][0]
        kept = first.dtype == returned[0].dtype and (same_order(name) or first.shape == returned[0].shape)
        if kept and not _same(first.reshape(-1), returned[0].reshape(-1)):
            found.add(f"{name} changes the contents")
    return result


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type == "cpu"


def _pointer(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.nan_to_num(), b.nan_to_num()) if a.shape == b.shape else False


def _operators() -> list[Any]:
    return [op for op in op_db if not op.name.startswith(_LEFT_OUT)]


def test_operators_write_and_alias_just_what_the_table_says() -> None:
    found: set[str] = set()
    ran = 0
    for op in _operators():
        dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else None
        if dtype is None:
            continue
        try:
            samples = [s for s, _ in zip(op.sample_inputs("cpu", dtype), range(_SAMPLES), strict=False)]
        except Exception:  # a sample that needs a library which is not there
            continue
        for sample in samples:
            try:
                with torch.no_grad(), _Checked(found):
                    op(sample.input, *sample.args, **sample.kwargs)
                ran += 1
            except Exception:  # an operator that refuses this sample says nothing about its effects
                continue
    assert ran > 1500, ran
    assert not found, "\n".join(sorted(found))


def test_composite_operators_that_may_return_their_argument_are_not_called_fresh() -> None:
    x = torch.ones(4)
    aten = torch.ops.aten
    found: set[str] = set()
    for function, args in [
        (aten.dropout.default, (x, 0.5, False)),
        (aten.reshape.default, (x, [2, 2])),
        (aten.contiguous.default, (x,)),
        (aten.broadcast_tensors.default, ([x, x],)),
        (aten.atleast_1d.default, (x,)),
        (aten.to.dtype, (x, torch.float32)),
        (aten.type_as.default, (x, x)),
        (aten.expand_as.default, (x, x)),
    ]:
        checked(function, args, {}, found)
    assert not found


def test_pieces_of_a_list_are_aliases() -> None:
    aten = torch.ops.aten
    for function in (aten.split.Tensor, aten.chunk.default, aten.unbind.int, aten.split_with_sizes.default):
        assert effect_of(function).aliases == ((0, 0),)


def test_in_place_variants_compute_what_their_functional_names_do() -> None:
    x = torch.arange(4.0)
    for overload, args in [
        (torch.ops.aten.add_.Tensor, (torch.ones(4),)),
        (torch.ops.aten.mul_.Scalar, (2.0,)),
        (torch.ops.aten.index_put_.default, ([torch.tensor([1])], torch.tensor([9.0]))),
        (torch.ops.aten.clamp_.default, (0.0, 1.0)),
        (torch.ops.aten.fill_.Scalar, (3.0,)),
    ]:
        namespace, base, variant = functional_name(canonical(overload)).split(".")
        functional = getattr(getattr(getattr(torch.ops, namespace), base), variant)
        assert torch.equal(functional(x, *args), overload(x.clone(), *args)), overload


def test_random_operators_and_assertions_stand_in_their_chains() -> None:
    aten = torch.ops.aten
    assert effect_of(aten.rand.default).chain is Chain.RANDOM
    assert effect_of(aten.bernoulli_.float).chain is Chain.RANDOM
    assert effect_of(aten._assert_scalar.default).chain is Chain.ORDERED
    assert effect_of(aten.add.Tensor).chain is None


def test_uninitialised_memory_is_no_function_of_its_shape() -> None:
    assert uninitialised(canonical(torch.ops.aten.empty.memory_format))
    assert not uninitialised(canonical(torch.ops.aten.zeros.default))


@pytest.mark.parametrize("name", ["aten.view.dtype", "aten.view_copy.dtype"])
def test_views_of_another_dtype_do_not_keep_the_contents(name: str) -> None:
    assert not same_order(name)
