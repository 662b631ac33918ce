"""From a recipe to a real exported program.

Each step calls an operator of its own (by a constant), so that no two steps compute the same by accident. All tensors
have one small shape; targets hold zeros.
"""

from __future__ import annotations

import operator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch._export.verifier import TrainingIRVerifier
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils import _pytree as pytree

from copyproof.spec.program import Role
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe

aten = torch.ops.aten
SHAPE = (2, 2)
_ZEROS = torch.zeros(SHAPE).numpy().tobytes()


_OPERATORS = {
    Kind.PURE: aten.mul.Tensor,
    Kind.PURE_OF_TWO: aten.add.Tensor,
    Kind.VIEW: aten.view.default,
    Kind.TURNED: aten.permute.default,
    Kind.LOWERED: aten.view_copy.default,
    Kind.CLONE: aten.clone.default,
    Kind.SEVERAL: aten.topk.default,
    Kind.WRITE: aten.add_.Tensor,
}
_ATTRIBUTES: dict[Kind, tuple[Any, ...]] = {
    Kind.VIEW: (list(SHAPE),),
    Kind.TURNED: ([1, 0],),
    Kind.LOWERED: (list(SHAPE),),
    Kind.SEVERAL: (SHAPE[-1],),
}


def call_of(step: Act, place: int) -> tuple[Any, tuple[Any, ...]]:
    """The operator that a step calls, and its arguments after its operands; `place` counts the steps from 0."""
    kind = step.kind
    return _OPERATORS[kind], (float(place + 2),) if kind is Kind.PURE else _ATTRIBUTES.get(kind, ())


def weights_of(step: Act, place: int) -> dict[str, Any]:
    """The keyword arguments of a step's call."""
    return {"alpha": float(place + 2)} if step.kind in (Kind.PURE_OF_TWO, Kind.WRITE) else {}


def mutation_of(role: Role) -> OutputKind:
    """The kind of output that mutates a target of this role."""
    return OutputKind.BUFFER_MUTATION if role is Role.BUFFER else OutputKind.USER_INPUT_MUTATION


@dataclass
class Builder:
    """Builds programs; keeps what many of them share: types, and all of a program that is not its graph."""

    mode: FakeTensorMode = field(default_factory=FakeTensorMode)
    types: dict[Any, tuple[Any, list[tuple[int, ...]]]] = field(default_factory=dict)
    shells: dict[tuple[Role, ...], ExportedProgram] = field(default_factory=dict)

    def program(self, recipe: Recipe) -> ExportedProgram:
        """A program of its own for `recipe`: graph, signature, contents."""
        graph, nodes = self._graph(recipe)
        outputs = [nodes[source] for source in recipe.sources] + [nodes[value] for value in recipe.outputs]
        graph.output(tuple(outputs))
        signature = ExportGraphSignature(list(self.input_specs(recipe)), self._output_specs(recipe, outputs))
        if recipe.targets not in self.shells:
            self.shells[recipe.targets] = self._whole(recipe, graph, signature)
        shell = self.shells[recipe.targets]
        program = copy(shell)
        # Made over from a validated program of the same inputs; the constructor would compile the graph.
        program._graph_module = _LazyGraphModule({}, graph)
        program._graph_module.meta.update(shell.graph_module.meta)
        program._graph_signature = signature
        program._state_dict = {name: torch.zeros(SHAPE) for name in shell.state_dict}
        program._constants = {}
        program._range_constraints = {}
        call = replace(shell.module_call_graph[0].signature, out_spec=_structure(len(recipe.outputs)))
        program._module_call_graph = [ModuleCallEntry("", call)]
        return program

    def has_changed(self, recipe: Recipe, program: ExportedProgram) -> bool:
        """Whether a pass changed what a program of `recipe` carries: its buffers, that it has no constants, or the
        types of nodes, which many programs share and which are then made anew."""
        held = [program.state_dict.get(name) for name in recipe.buffers]
        kept = (
            len(program.state_dict) == len(held)
            and not program.constants
            and all(isinstance(v, torch.Tensor) and v.dtype is torch.float32 and _is_plain(v) for v in held)
            and all(v.detach().numpy().tobytes() == _ZEROS for v in held)
            and len({v.untyped_storage().data_ptr() for v in held}) == len(held)
        )
        # Types are looked at whatever became of the contents: programs that are made later share them.
        return self._types_changed() or not kept

    def _types_changed(self) -> bool:
        if all(
            _is_plain(leaf, was)
            for value, strides in self.types.values()
            for leaf, was in zip(_listed(value), strides, strict=True)
        ):
            return False
        self.types.clear()
        return True

    def input_specs(self, recipe: Recipe) -> tuple[InputSpec, ...]:
        """The signature's side of the placeholders."""
        specs = []
        for name, role in zip(recipe.names, (*recipe.targets, Role.USER_INPUT), strict=False):
            if role is Role.BUFFER:
                specs.append(InputSpec(InputKind.BUFFER, TensorArgument(name), name, persistent=True))
            else:
                specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(name), None))
        return tuple(specs)

    def _graph(self, recipe: Recipe) -> tuple[Graph, list[Node]]:
        graph = Graph()
        nodes = []
        for name in recipe.names[: recipe.bystander + 1]:
            node = graph.placeholder(name)
            node.meta["val"] = self._input_type()
            nodes.append(node)
        for place, (name, step) in enumerate(zip(recipe.names[recipe.bystander + 1 :], recipe.steps, strict=True)):
            target, more = call_of(step, place)
            operands = [nodes[o] for o in step.operands]
            kwargs = weights_of(step, place)
            if step.kind is Kind.SEVERAL:
                several = graph.create_node("call_function", target, (*operands, *more), kwargs, name=f"{name}s")
                several.meta["val"] = self._type(step, operands, more, kwargs)
                node = graph.create_node("call_function", operator.getitem, (several, 0), {}, name=name)
                node.meta["val"] = several.meta["val"][0]
            else:
                node = graph.create_node("call_function", target, (*operands, *more), kwargs, name=name)
                node.meta["val"] = self._type(step, operands, more, kwargs)
            nodes.append(node)
        return graph, nodes

    def _input_type(self) -> Any:
        if "input" not in self.types:
            self._keep("input", self.mode.from_tensor(torch.zeros(SHAPE)))
        return self.types["input"][0]

    def _keep(self, key: Any, value: Any) -> None:
        """Keeps a type, with the strides that it has now: a pass may change it in place."""
        self.types[key] = value, [leaf.stride() for leaf in _listed(value)]

    def _type(self, step: Act, operands: list[Node], more: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = [node.meta["val"] for node in operands]
        key = (step.kind, *(value.stride() for value in values))
        if key not in self.types:
            with self.mode:
                self._keep(key, call_of(step, 0)[0](*values, *more, **kwargs))
        return self.types[key][0]

    def _output_specs(self, recipe: Recipe, outputs: list[Node]) -> list[OutputSpec]:
        specs = []
        for role, name, node in zip(recipe.targets, recipe.names, outputs, strict=False):
            specs.append(OutputSpec(mutation_of(role), TensorArgument(node.name), name))
        for node in outputs[len(recipe.targets) :]:
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None))
        return specs

    def _whole(self, recipe: Recipe, graph: Graph, signature: ExportGraphSignature) -> ExportedProgram:
        given = tuple(example(k) for k in range(recipe.bystander + 1 - len(recipe.buffers)))
        call = ModuleCallSignature([], [], pytree.tree_structure((given, {})), _structure(len(recipe.outputs)))
        return ExportedProgram(
            root=GraphModule({}, graph),
            graph=graph,
            graph_signature=signature,
            state_dict={name: torch.zeros(SHAPE) for name in recipe.buffers},
            range_constraints={},
            module_call_graph=[ModuleCallEntry("", call)],
            example_inputs=(given, {}),
            constants={},
            verifiers=[TrainingIRVerifier],
        )


def example(place: int) -> torch.Tensor:
    """The example of user input number `place`."""
    return torch.arange(1.0, 5.0).reshape(SHAPE) + 4.0 * place


@cache
def _structure(count: int) -> pytree.TreeSpec:
    """How a call returns so many user outputs."""
    return pytree.tree_structure(tuple(range(count)))


def _listed(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


def _is_plain(value: torch.Tensor, strides: tuple[int, ...] = (SHAPE[-1], 1)) -> bool:
    """Whether a tensor has the one shape, the strides that are given, and nothing before it in its storage."""
    return tuple(value.shape) == SHAPE and value.stride() == strides and not value.storage_offset()
