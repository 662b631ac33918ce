"""Programs of a few nodes, one for each hazard kind."""

from __future__ import annotations

import operator
from collections.abc import Callable

from torch.export import ExportedProgram

from .building import Builder, aten


def old_read_through_a_lowered_view() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    view = build(aten.view_copy.default, b, [2, 2])
    new = build(aten.add.Tensor, b, x)
    return build.returns(build(aten.mul.Tensor, view, 2.0), b=new)


def old_read_through_a_chain_of_views() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    view = build(aten.view_copy.default, build(aten.view_copy.default, b, [2, 2]), [4, 1])
    new = build(aten.add.Tensor, b, x)
    return build.returns(build(aten.mul.Tensor, view, 2.0), b=new)


def old_read_through_a_schema_view() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    view = build(aten.slice.Tensor, b, 0, 1, 3)
    new = build(aten.add.Tensor, b, x)
    return build.returns(build(aten.mul.Tensor, view, 2.0), b=new)


def old_read_directly() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    new = build(aten.neg.default, x)
    return build.returns(build(aten.mul.Tensor, b, 2.0), b=new)


def source_computed_late() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    early = build(aten.mul.Tensor, b, 2.0)
    return build.returns(early, b=build(aten.neg.default, x))


def swap() -> ExportedProgram:
    build = Builder()
    p, q, x = build.buffer("p", 4), build.buffer("q", 4), build.input("x", 4)
    return build.returns(build(aten.add.Tensor, p, x), p=q, q=p)


def rotation_of_three() -> ExportedProgram:
    build = Builder()
    p, q, r = build.buffer("p", 4), build.buffer("q", 4), build.buffer("r", 4)
    x = build.input("x", 4)
    return build.returns(build(aten.add.Tensor, p, x), p=q, q=r, r=p)


def chain_of_copies() -> ExportedProgram:
    build = Builder()
    a, b, x = build.buffer("a", 4), build.buffer("b", 4), build.input("x", 4)
    return build.returns(build(aten.add.Tensor, a, b), a=x, b=a)


def chain_through_a_lowered_view() -> ExportedProgram:
    build = Builder()
    a, _, x = build.buffer("a", 4), build.buffer("b", 2, 2), build.input("x", 4)
    new = build(aten.mul.Tensor, a, x)
    return build.returns(x, b=build(aten.view_copy.default, a, [2, 2]), a=new)


def old_contents_returned() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    return build.returns(b, build(aten.add.Tensor, x, 1.0), b=build(aten.add.Tensor, b, x))


def source_is_its_target_transposed() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 2, 2), build.input("x", 2, 2)
    return build.returns(build(aten.add.Tensor, b, x), b=build(aten.permute.default, b, [1, 0]))


def source_written_in_place_later() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    new = build(aten.add.Tensor, b, x)
    y = build(aten.mul.Tensor, x, 2.0)
    written = build(aten.add_.Tensor, new, y)
    return build.returns(written, b=new)


def in_place_target_and_copied_target() -> ExportedProgram:
    build = Builder()
    a, b, x = build.buffer("a", 4), build.buffer("b", 4), build.input("x", 4)
    written = build(aten.add_.Tensor, a, x)
    return build.returns(build(aten.neg.default, written), a=written, b=build(aten.mul.Tensor, b, x))


def view_taken_before_an_in_place_write() -> ExportedProgram:
    build = Builder()
    a, x = build.buffer("a", 4), build.input("x", 4)
    view = build(aten.view_copy.default, a, [2, 2])
    written = build(aten.add_.Tensor, a, x)
    return build.returns(build(aten.mul.Tensor, view, 3.0), a=written)


def user_input_mutated() -> ExportedProgram:
    build = Builder()
    x = build.input("x", 4)
    y = build(aten.mul.Tensor, x, 2.0)
    return build.returns(y, x=build(aten.add.Tensor, x, 1.0))


def one_value_for_two_targets() -> ExportedProgram:
    build = Builder()
    a, b, x = build.buffer("a", 4), build.buffer("b", 4), build.input("x", 4)
    new = build(aten.add.Tensor, a, x)
    again = build(aten.view.default, new, [4])
    return build.returns(build(aten.mul.Tensor, b, 2.0), a=new, b=again)


def pieces_of_the_old_contents() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 2)
    pieces = build(aten.split.Tensor, b, 2)
    first, second = build(operator.getitem, pieces, 0), build(operator.getitem, pieces, 1)
    new = build(aten.cat.default, [second, x])
    return build.returns(build(aten.add.Tensor, first, second), b=new)


def expanded_old_contents() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 1), build.input("x", 3)
    wide = build(aten.expand.default, b, [3])
    new = build(aten.add.Tensor, b, 1.0)
    return build.returns(build(aten.mul.Tensor, wide, x), b=new)


def may_be_a_view() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    perhaps = build(aten.reshape.default, b, [2, 2])
    new = build(aten.add.Tensor, b, x)
    return build.returns(build(aten.mul.Tensor, perhaps, 2.0), b=new)


def returned_value_that_may_be_either_target() -> ExportedProgram:
    build = Builder()
    a, b, x = build.buffer("a", 4), build.buffer("b", 4), build.input("x", 4)
    perhaps = build(aten.type_as.default, a, b)
    return build.returns(perhaps, a=build(aten.mul.Tensor, b, x), b=build(aten.neg.default, x))


def returned_value_that_may_be_a_bystander() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    return build.returns(build(aten.reshape.default, x, [2, 2]), b=build(aten.add.Tensor, b, x))


def source_that_may_be_its_target() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    perhaps = build(aten.reshape.default, b, [4])
    return build.returns(build(aten.add.Tensor, b, x), b=perhaps)


def random_numbers() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    noise = build(aten.rand_like.default, x)
    more = build(aten.rand_like.default, x)
    return build.returns(build(aten.add.Tensor, more, b), b=build(aten.add.Tensor, b, noise))


def nothing_returned() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 4), build.input("x", 4)
    return build.returns(b=build(aten.add.Tensor, b, x))


def empty_state() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b", 0), build.input("x", 4)
    return build.returns(build(aten.add.Tensor, x, 1.0), b=build(aten.neg.default, b))


def state_of_one_number() -> ExportedProgram:
    build = Builder()
    b, x = build.buffer("b"), build.input("x", 4)
    return build.returns(build(aten.mul.Tensor, x, b), b=build(aten.add.Tensor, b, 1.0))


PROGRAMS: list[Callable[[], ExportedProgram]] = [
    old_read_through_a_lowered_view,
    old_read_through_a_chain_of_views,
    old_read_through_a_schema_view,
    old_read_directly,
    source_computed_late,
    swap,
    rotation_of_three,
    chain_of_copies,
    chain_through_a_lowered_view,
    old_contents_returned,
    source_is_its_target_transposed,
    source_written_in_place_later,
    in_place_target_and_copied_target,
    view_taken_before_an_in_place_write,
    user_input_mutated,
    one_value_for_two_targets,
    pieces_of_the_old_contents,
    expanded_old_contents,
    may_be_a_view,
    returned_value_that_may_be_either_target,
    returned_value_that_may_be_a_bystander,
    source_that_may_be_its_target,
    random_numbers,
    nothing_returned,
    empty_state,
    state_of_one_number,
]
