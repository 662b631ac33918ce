"""A small builder of exported programs, so that a test's graph can be read in three lines.

build = Builder()
b, x = build.buffer("b", 4), build.input("x", 4)
program = build.returns(build(aten.mul.Tensor, b, 2.0), b=build(aten.add.Tensor, b, x))
"""

from __future__ import annotations

from typing import Any

import torch
from torch._export.verifier import TrainingIRVerifier
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

aten = torch.ops.aten


class Builder:
    """Builds one program, node by node; each node gets the type that running it on fake tensors gives."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode()
        self.graph = Graph()
        self.inputs: list[InputSpec] = []
        self.state: dict[str, torch.Tensor] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self.examples: list[torch.Tensor] = []

    def buffer(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Node:
        """A buffer of zeros."""
        self.state[name] = torch.zeros(shape, dtype=dtype)
        spec = InputSpec(InputKind.BUFFER, TensorArgument(name), name, persistent=True)
        return self._placeholder(name, self.state[name], spec)

    def parameter(self, name: str, *shape: int) -> Node:
        """A parameter."""
        self.state[name] = torch.nn.Parameter(torch.ones(shape), requires_grad=False)
        return self._placeholder(name, self.state[name], InputSpec(InputKind.PARAMETER, TensorArgument(name), name))

    def input(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Node:
        """A user input, whose example is 1, 2, 3, ..."""
        count = int(torch.tensor(shape).prod()) if shape else 1
        value = torch.arange(1, count + 1).reshape(shape).to(dtype)
        self.examples.append(value)
        return self._placeholder(name, value, InputSpec(InputKind.USER_INPUT, TensorArgument(name), None))

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A call of an operator."""
        node = self.graph.call_function(target, args, kwargs)
        values = pytree.tree_map_only(Node, lambda n: n.meta["val"], (args, kwargs))
        with self.mode:
            node.meta["val"] = target(*values[0], **values[1])
        return node

    def returns(self, *outputs: Any, **mutations: Node) -> ExportedProgram:
        """The program that returns `outputs`, and assigns each named buffer or input its new value."""
        specs = []
        for name, value in mutations.items():
            kind = OutputKind.BUFFER_MUTATION if name in self.state else OutputKind.USER_INPUT_MUTATION
            specs.append(OutputSpec(kind, TensorArgument(value.name), name))
        specs += [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(value.name), None) for value in outputs]
        self.graph.output((*mutations.values(), *outputs))
        examples = tuple(self.examples)
        call = ModuleCallSignature(
            [], [], pytree.tree_structure((examples, {})), pytree.tree_structure(tuple(range(len(outputs))))
        )
        return ExportedProgram(
            root=GraphModule({}, self.graph),
            graph=self.graph,
            graph_signature=ExportGraphSignature(self.inputs, specs),
            state_dict=self.state,
            range_constraints={},
            module_call_graph=[ModuleCallEntry("", call)],
            example_inputs=(examples, {}),
            constants=self.constants,
            verifiers=[TrainingIRVerifier],
        )

    def _placeholder(self, name: str, value: torch.Tensor, spec: InputSpec) -> Node:
        node = self.graph.placeholder(name)
        node.name = name
        node.meta["val"] = self.mode.from_tensor(value)
        self.inputs.append(spec)
        return node
