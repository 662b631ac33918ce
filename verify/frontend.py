"""From an exported program, or a rewritten graph with its signature, to the program model.

Types are taken from the original's `meta["val"]` where a node is the original's, and computed again for nodes that a
pass inserted, so that wrong metadata cannot hide a wrong program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec
from torch.fx import Graph, GraphModule, Node, map_arg
from torch.utils import _pytree as pytree

from copyproof.spec.effects import (
    NO_LOWERING,
    Contents,
    Profile,
    carries_around,
    functional_name,
    reads_around,
    reads_contents,
    same_order,
    uninitialised,
)
from copyproof.spec.errors import BadInput
from copyproof.spec.graph import (
    ALL,
    Action,
    action_of,
    graph_of,
    is_lowered_view,
    is_scalar,
    lowered_base,
    overload_of,
)
from copyproof.spec.program import (
    Input,
    Output,
    Program,
    Result,
    Role,
    Step,
    Value,
)
from copyproof.spec.signature import MUTATIONS, mutated_placeholder
from copyproof.verify.fakes import call_of, leaves_of, size_of, tensor_type, types_of
from copyproof.verify.spelling import attribute, digest_of, same_call, spelled

_ROLES = {
    InputKind.USER_INPUT: Role.USER_INPUT,
    InputKind.BUFFER: Role.BUFFER,
    InputKind.PARAMETER: Role.PARAMETER,
    InputKind.CONSTANT_TENSOR: Role.CONSTANT,
}


def original_programs_of(exported: ExportedProgram, profile: Profile) -> tuple[Program, Program]:
    """The model of an exported program, twice: by its functional meaning, with no lowering; and as `profile` lowers it
    once its targets, and not their sources, are returned, which is what end placement leaves.

    Where the program writes in place itself, a lowered view may have to be a clone to keep what it saw; then the second
    one has no lowering either.

    Raises:
        BadInput: a node of the graph is no call, or the signature does not fit the graph.
    """
    reader = Reader(exported, exported.graph_module, exported.graph_signature, NO_LOWERING, {})
    functional = reader.program()
    if any(step.writes for step in functional.steps):
        return functional, functional
    pairs = zip(exported.graph_signature.output_specs, reader.output_values, strict=True)
    returned = {node for spec, node in pairs if spec.kind is OutputKind.USER_OUTPUT and isinstance(node, Node)}
    lowered = {
        node.name: reader.lowered_step(node, profile)
        for node in exported.graph.nodes
        if is_lowered_view(node, profile, returned)
    }
    steps = tuple(lowered.get(step.name, step) for step in functional.steps)
    return functional, replace(functional, steps=steps)


def rewritten_program_of(
    original: ExportedProgram, graph_module: GraphModule, signature: ExportGraphSignature, profile: Profile
) -> Program:
    """The model of a graph that a pass made out of `original`, lowered by `profile`.

    Raises:
        BadInput: its placeholders are not the original's.
    """
    require_same_placeholders(original, graph_module)
    trusted = {node.name: node for node in original.graph.nodes}
    return Reader(original, graph_module, signature, profile, trusted).program()


def require_same_placeholders(original: ExportedProgram, graph_module: GraphModule) -> None:
    """Raises BadInput where a rewritten graph has other placeholders than the original, or in another order."""
    before = [n.name for n in original.graph.nodes if n.op == "placeholder"]
    after = [n.name for n in graph_module.graph.nodes if n.op == "placeholder"]
    if before != after:
        odd = next((name for name in after if name not in before), None) or next(
            (name for name in before if name not in after), "their order"
        )
        raise BadInput(
            f"the rewritten graph has other placeholders than the original (first difference: {odd}); "
            "a write-back pass must keep them all, in order"
        )


_NO_FAKE_KERNEL = (
    UnsupportedOperatorException,
    DynamicOutputShapeException,
    DataDependentOutputException,
    NotImplementedError,
)
_HIGHER_ORDER = frozenset(
    {
        "cond",
        "map_impl",
        "scan",
        "while_loop",
        "auto_functionalized",
        "auto_functionalized_v2",
        "executorch_call_delegate",
    }
)


class Reader:
    """Reads one graph. `trusted` are the original's nodes by name; `spell` gives the symbol of a call. For whoever
    reads many graphs made out of one, `read` is the original, not lowered, and `computed` keeps what calls return."""

    def __init__(
        self,
        original: ExportedProgram,
        graph_module: GraphModule,
        signature: ExportGraphSignature,
        profile: Profile,
        trusted: Mapping[str, Node],
        spell: Callable[[str, Node, torch._ops.OpOverload | None], str] | None = None,
        read: Program | None = None,
        computed: dict[Any, Any] | None = None,
    ) -> None:
        self.inputs_read = {item.name: item for item in read.inputs} if read is not None else {}
        self.steps_read = {step.name: step for step in read.steps} if read is not None else {}
        self.computed = computed
        self.spell = spell or spelled
        self.original = original
        self.graph_module = graph_module
        self.graph = graph_of(graph_module)
        self.signature = signature
        self.profile = profile
        self.trusted = trusted
        self.names: set[str] = set()
        self.vals: dict[Node, Any] = {}
        self.unchanged: set[Node] = set()
        self.values: dict[Node, Value] = {}
        self.paths: dict[Node, tuple[Node, tuple[int, ...]]] = {}
        self.constants: dict[tuple[Any, ...], Value] = {}
        self.output_values = _returned(self.graph)
        self.returned = {value for value in self.output_values if isinstance(value, Node)}

    def program(self) -> Program:
        inputs: list[Input] = []
        steps: list[Step] = []
        specs = {getattr(spec.arg, "name", ""): spec for spec in self.original.graph_signature.input_specs}
        for node in self.graph.nodes:
            if node.op == "output":
                break
            self._check(node)
            self.vals[node] = self._val(node)
            self.values[node] = Value(node.name)
            if node.op == "placeholder" and node.name in self.inputs_read:
                inputs.append(self.inputs_read[node.name])
            elif node.op == "placeholder":
                spec = specs.get(node.name)
                role = _ROLES.get(spec.kind, Role.OTHER) if spec else Role.OTHER
                target = spec.target if spec and spec.target else node.name
                inputs.append(Input(node.name, role, target, tensor_type(self.vals[node])))
            elif node.op == "get_attr":
                self._constant(node, inputs)
            else:
                step = self._step(node)
                if step is not None:
                    steps.append(step)
        spelled_specs = tuple(_spec_text(spec) for spec in self.signature.input_specs)
        return Program(tuple(inputs), tuple(steps), self._outputs(), self._ranges(), spelled_specs)

    def _check(self, node: Node) -> None:
        """Raises BadInput where a node can be no part of a program."""
        if node.op not in ("placeholder", "get_attr", "call_function"):
            raise BadInput(
                f"node {node.name} is a {node.op}; a write-back pass works on the flat graphs of torch.export"
            )
        if node.name in self.names:
            raise BadInput(f"two nodes of the graph are named {node.name}; lint the graph")
        self.names.add(node.name)
        for operand in node.all_input_nodes:
            if operand not in self.values:
                raise BadInput(f"node {node.name} uses {operand.name} before it is defined; the graph is no program")
        if isinstance(node.target, torch._ops.OpOverloadPacket):
            raise BadInput(f"node {node.name} calls {node.target} without an overload; name it, as .default")

    def _constant(self, node: Node, inputs: list[Input]) -> None:
        """A constant that the graph holds itself; nodes that name the same memory name the same constant."""
        held = attribute(self.graph_module, str(node.target))
        if held is None:
            raise BadInput(f"node {node.name} names {node.target}, which the graph module does not have")
        if isinstance(held, torch.Tensor):
            place = (held.untyped_storage().data_ptr(), held.storage_offset(), held.shape, held.stride(), held.dtype)
            known = self.constants.setdefault(place, Value(node.name))
            if known != Value(node.name):
                self.values[node] = known
                return
            if any(p[0] == place[0] and p != place for p in self.constants if place[0]):
                raise BadInput(f"the constant {node.target} shares memory with another one; clone it")
        inputs.append(Input(node.name, Role.CONSTANT, f"{node.target}#{digest_of(held)}", tensor_type(self.vals[node])))

    def _outputs(self) -> tuple[Output, ...]:
        outputs = []
        specs = self.signature.output_specs
        for index in range(max(len(specs), len(self.output_values))):
            spec = specs[index] if index < len(specs) else None
            node = self.output_values[index] if index < len(self.output_values) else None
            if isinstance(node, (list, tuple)) or isinstance(self.vals.get(node), (list, tuple)):  # type: ignore[arg-type]
                raise BadInput(f"output {index} of the graph is a list; exported graphs return tensors and numbers")
            target = mutated_placeholder(spec, self.original.graph_signature) if spec else None
            if spec is not None and target is None and spec.kind in MUTATIONS:
                target = f"no input ({spec.target})"
            outputs.append(
                Output(
                    self.values[node] if isinstance(node, Node) else None,
                    repr(node) if index < len(self.output_values) else "nothing",
                    _kind_text(spec) if spec else "no spec",
                    target,
                    str(getattr(spec.arg, "name", None) or getattr(spec.arg, "value", "")) if spec else "",
                    node.name if isinstance(node, Node) else "",
                )
            )
        return tuple(outputs)

    def _ranges(self) -> dict[str, tuple[int | None, int | None]]:
        found: dict[str, tuple[int | None, int | None]] = {}
        for symbol, bounds in self.original.range_constraints.items():
            lower, upper = bounds.lower, bounds.upper
            found[str(symbol)] = (
                int(lower) if lower.is_Integer else None,
                int(upper) if upper.is_Integer and upper < 2**62 else None,
            )
        return found

    def _step(self, node: Node) -> Step | None:
        if is_lowered_view(node, self.profile, self.returned):
            return self.lowered_step(node, self.profile)
        if node in self.unchanged and node.name in self.steps_read:
            return self.steps_read[node.name]
        action = action_of(node)
        if action.name == "getitem":
            if self._item(node):
                return None
            raise BadInput(f"node {node.name} takes the item {node.args[1]!r} of {node.args[0]}, which has none such")
        overload = overload_of(node.target)
        plain = functional_name(action.name)
        in_place = plain != action.name and action.writes == (0,)
        leaves = leaves_of(self.vals[node])
        several = overload is None or len(overload._schema.returns) > 1
        # An operand that is a whole list or tuple is read in each of its results.
        operands = [self._operand(operand) for operand in action.operands]
        first = [sum(len(values) for values in operands[:i]) for i in range(len(operands))]
        return Step(
            node.name,
            self.spell(plain if in_place else action.name, node, overload),
            tuple(value for values in operands for value in values),
            tuple(self._result(action, path[0] if path and several else 0, val) for path, val in leaves),
            tuple(first[i] + k for i in action.writes for k in range(len(operands[i]))),
            action.contents,
            action.chains,
            reads=reads_contents(action.name),
            in_place=in_place,
            pointwise=overload is not None and torch.Tag.pointwise in overload.tags,
            copy=action.name == "aten.copy_.default",
            same_order=same_order(action.name),
            uninitialised=uninitialised(action.name),
            reads_around=reads_around(action.name),
            carries_around=carries_around(action.name),
            approximation=action.approximation,
            opaque=action.opaque,
            untyped=self._untyped(node),
        )

    def lowered_step(self, node: Node, profile: Profile) -> Step:
        """The step of a node that `profile` turns into a view."""
        result = Result(tensor_type(self.vals[node]), self.values[lowered_base(node, profile)], same_region=True)
        return Step(node.name, "view", (), (result,), contents=Contents.FIRST, lowered=True)

    def _operand(self, node: Node) -> list[Value]:
        """The values that an operand stands for."""
        if not isinstance(self.vals[node], (list, tuple)):
            return [self.values[node]]
        root, path = self.paths.get(node, (node, ()))
        flat = [leaf for leaf, _ in leaves_of(self.vals[root])]
        return [Value(self.values[root].name, i) for i, leaf in enumerate(flat) if leaf[: len(path)] == path]

    def _result(self, action: Action, index: int, val: Any) -> Result:
        kind = tensor_type(val)
        if kind is None:
            # What a higher-order operator computes is up to its subgraphs, whatever its metadata says.
            computed = action.name in _HIGHER_ORDER or action.opaque is not None
            return Result(None, size=None if computed else size_of(val))
        positions = [
            i for result, i in action.aliases if result in (ALL, index) and not is_scalar(self.vals[action.operands[i]])
        ]
        bases = tuple(value for i in positions for value in self._operand(action.operands[i]))
        if not bases:
            return Result(kind)
        if action.maybe or len(set(bases)) > 1:
            return Result(kind, maybe=bases)
        written = positions[0] in action.writes and kind == tensor_type(self.vals[action.operands[positions[0]]])
        return Result(kind, bases[0], same_region=written or same_order(action.name))

    def _item(self, node: Node) -> bool:
        """Resolves an item of a step's results to the value that it is; False where it is none."""
        owner, index = node.args[0], node.args[1]
        if not isinstance(owner, Node) or not isinstance(index, int):
            return False
        root, path = self.paths.get(owner, (owner, ()))
        inner = self.vals[owner]
        if not isinstance(inner, (list, tuple)) or not -len(inner) <= index < len(inner):
            return False
        path = (*path, index % len(inner))
        self.paths[node] = (root, path)
        self.vals[node] = inner[index]
        flat = [leaf for leaf, _ in leaves_of(self.vals[root])]
        if path in flat:
            self.values[node] = Value(self.values[root].name, flat.index(path))
        return True

    def _same(self, known: Node, node: Node) -> bool:
        """Whether a node of the rewritten graph is the call, or names the constant, that the original's is."""
        if known.op == node.op == "get_attr":
            before = attribute(self.original.graph_module, str(known.target))
            return digest_of(before) == digest_of(attribute(self.graph_module, str(node.target)))
        return same_call(known, node)

    def _untyped(self, node: Node) -> str | None:
        if self.vals[node] is None and node.users:
            return f"{node.name} has no type: it cannot be run on fake tensors, and its meta['val'] is missing"
        return None

    def _val(self, node: Node) -> Any:
        """What `node` returns, as fake tensors and symbolic numbers.

        Raises:
            BadInput: it cannot run on its operands.
        """
        known = self.trusted.get(node.name)
        same = known is not None and self._same(known, node) and self.unchanged.issuperset(node.all_input_nodes)
        if not self.trusted or same:
            self.unchanged.add(node)
            val = (known or node).meta.get("val")
            return attribute(self.graph_module, str(node.target)) if val is None and node.op == "get_attr" else val
        if node.op == "placeholder":
            # Inputs are handed over by position; what the target of one is called means nothing.
            return (known or node).meta.get("val")
        if node.op != "call_function":
            return attribute(self.graph_module, str(node.target)) if node.op == "get_attr" else node.meta.get("val")
        if node.target is operator.getitem:
            return None
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: self.vals.get(n))
        key = None if self.computed is None else call_of(node.target, args, kwargs)
        if key is None:
            return self._run(node, args, kwargs)
        assert self.computed is not None
        if key not in self.computed:
            self.computed[key] = self._run(node, args, kwargs)
        return self.computed[key]

    def _run(self, node: Node, args: Any, kwargs: Any) -> Any:
        """What a call returns on fake operands; BadInput where it cannot run on them. What the node says of itself
        counts for nothing: a pass wrote it."""
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._as_known(node)
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._fake, (args, kwargs))
        try:
            with torch.no_grad(), self.mode:
                return node.target(*args, **kwargs)  # type: ignore[operator]
        except _NO_FAKE_KERNEL:
            return self._as_known(node)
        except Exception as error:
            if any(v is None for v in pytree.tree_leaves([self.vals[n] for n in node.all_input_nodes])):
                return None
            raise BadInput(f"node {node.name} cannot run: {(str(error).splitlines() or [''])[0]}") from error

    @cached_property
    def mode(self) -> FakeTensorMode:
        """The mode of the original's fake tensors, or a new one where it has none."""
        vals = (leaf for node in self.original.graph.nodes for leaf in pytree.tree_leaves(node.meta.get("val")))
        found = next((v.fake_mode for v in vals if isinstance(v, FakeTensor)), None)
        return found or FakeTensorMode(allow_non_fake_inputs=True)

    def _fake(self, value: torch.Tensor) -> torch.Tensor:
        return value if isinstance(value, FakeTensor) else self.mode.from_tensor(value)

    def _as_known(self, node: Node) -> Any:
        """What the original's call of this name returns, where it is the same but for operands of the same types;
        nothing else says what a call returns that cannot run on fake tensors. None where there is no such call."""
        known = self.trusted.get(node.name)
        if known is None or known.target is not node.target:
            return None

        # What is no tensor, as a branch's graph, must be the very one that the original has.
        others = (operand for operand in node.all_input_nodes if None in types_of(self.vals[operand]))
        if not self.unchanged.issuperset(others):
            return None

        def call(of: Node, vals: Callable[[Node], Any]) -> str:
            told = {o: o.name if None in types_of(vals(o)) else str(types_of(vals(o))) for o in of.all_input_nodes}
            return repr(map_arg((of.args, dict(sorted(of.kwargs.items()))), lambda operand: f"%{told[operand]}"))

        same = call(node, self.vals.__getitem__) == call(known, lambda operand: operand.meta.get("val"))
        return known.meta.get("val") if same else None


def _returned(graph: Graph) -> list[Any]:
    """What the output node returns.

    Raises:
        BadInput: there is no output node, or it returns no tuple.
    """
    outputs = [node for node in graph.nodes if node.op == "output"]
    if len(outputs) != 1 or not outputs[0].args or not isinstance(outputs[0].args[0], (list, tuple)):
        raise BadInput("the graph does not end in one output node that returns a tuple, as exported graphs do")
    return list(outputs[0].args[0])


def _spec_text(spec: InputSpec) -> str:
    return f"{_kind_text(spec)} {getattr(spec.arg, 'name', '')} {spec.target} {spec.persistent}"


def _kind_text(spec: InputSpec | OutputSpec) -> str:
    """The kind that a spec says, and that of its argument where that is no tensor."""
    argument = type(spec.arg).__name__
    return spec.kind.name if argument == "TensorArgument" else f"{spec.kind.name} {argument}"
