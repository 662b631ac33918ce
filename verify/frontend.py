"""From an exported program, or a rewritten graph with its signature, to the program model.

Types are taken from the original's `meta["val"]` where a node is the original's, and computed again for nodes that a
pass inserted, so that wrong metadata cannot hide a wrong program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from copyproof.spec.effects import (
    NO_LOWERING,
    Contents,
    Profile,
    functional_name,
    reads_contents,
    same_order,
    uninitialised,
)
from copyproof.spec.graph import (
    ALL,
    Action,
    action_of,
    is_lowered_view,
    is_scalar,
    lowered_base,
    overload_of,
)
from copyproof.spec.program import (
    BadInput,
    Input,
    Output,
    Program,
    Result,
    Role,
    Size,
    Step,
    TensorType,
    Value,
)

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
    reader = _Reader(exported, exported.graph_module, exported.graph_signature, NO_LOWERING, {})
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
    trusted = {node.name: node for node in original.graph.nodes}
    return _Reader(original, graph_module, signature, profile, trusted).program()


class _Reader:
    def __init__(
        self,
        original: ExportedProgram,
        graph_module: GraphModule,
        signature: ExportGraphSignature,
        profile: Profile,
        trusted: Mapping[str, Node],
    ) -> None:
        self.original = original
        self.graph_module = graph_module
        self.graph = graph_module.graph
        self.signature = signature
        self.profile = profile
        self.trusted = trusted
        self.vals: dict[Node, Any] = {}
        self.unchanged: set[Node] = set()
        self.values: dict[Node, Value] = {}
        output = self.graph.output_node()
        self.returned = set(output.all_input_nodes)
        self.output_values = list(output.args[0])  # type: ignore[arg-type]

    def program(self) -> Program:
        inputs: list[Input] = []
        steps: list[Step] = []
        specs = {spec.arg.name: spec for spec in self.original.graph_signature.input_specs}
        for node in self.graph.nodes:
            if node.op == "output":
                break
            for operand in node.all_input_nodes:
                if operand not in self.values:
                    raise BadInput(
                        f"node {node.name} uses {operand.name} before it is defined; the graph is no program"
                    )
            self.vals[node] = self._val(node)
            self.values[node] = Value(node.name)
            if node.op == "placeholder":
                spec = specs.get(node.name)
                role = _ROLES.get(spec.kind, Role.OTHER) if spec else Role.OTHER
                target = spec.target if spec and spec.target else node.name
                inputs.append(Input(node.name, role, target, tensor_type(self.vals[node])))
            elif node.op == "get_attr":
                target = f"{node.target}#{_module_text(self._attribute(node))}"
                inputs.append(Input(node.name, Role.CONSTANT, target, tensor_type(self.vals[node])))
            elif node.op == "call_function":
                step = self._step(node)
                if step is not None:
                    steps.append(step)
            else:
                raise BadInput(
                    f"node {node.name} is a {node.op}; a write-back pass works on the flat graphs of torch.export"
                )
        return Program(tuple(inputs), tuple(steps), self._outputs(), self._ranges())

    def _outputs(self) -> tuple[Output, ...]:
        by_target = {s.target: s.arg.name for s in self.original.graph_signature.input_specs if s.target}
        outputs = []
        specs = self.signature.output_specs
        for index in range(max(len(specs), len(self.output_values))):
            spec = specs[index] if index < len(specs) else None
            node = self.output_values[index] if index < len(self.output_values) else None
            target = by_target.get(spec.target or "", spec.target) if spec else None
            outputs.append(
                Output(
                    self.values[node] if isinstance(node, Node) else None,
                    repr(node) if index < len(self.output_values) else "nothing",
                    spec.kind.name if spec else "no spec",
                    target,
                    str(getattr(spec.arg, "name", None) or getattr(spec.arg, "value", "")) if spec else "",
                    node.name if isinstance(node, Node) else "",
                )
            )
        return tuple(outputs)

    def _ranges(self) -> dict[str, tuple[int, int | None]]:
        found: dict[str, tuple[int, int | None]] = {}
        for symbol, bounds in self.original.range_constraints.items():
            lower, upper = bounds.lower, bounds.upper
            found[str(symbol)] = (
                int(lower) if lower.is_Integer else 0,
                int(upper) if upper.is_Integer and upper < 2**62 else None,
            )
        return found

    def _step(self, node: Node) -> Step | None:
        if is_lowered_view(node, self.profile, self.returned):
            return self.lowered_step(node, self.profile)
        action = action_of(node)
        if action.name == "getitem":
            owner, index = node.args[0], node.args[1]
            if isinstance(owner, Node) and isinstance(index, int):
                self.values[node] = Value(owner.name, index)
                return None
        overload = overload_of(node.target)
        plain = functional_name(action.name)
        in_place = plain != action.name and action.writes == (0,)
        vals = self.vals[node]
        listed = list(vals) if isinstance(vals, (list, tuple)) else [vals]
        return Step(
            node.name,
            _spell(plain if in_place else action.name, node, overload),
            tuple(self.values[operand] for operand in action.operands),
            tuple(self._result(action, index, val) for index, val in enumerate(listed)),
            action.writes,
            action.contents,
            action.chain,
            reads=reads_contents(action.name),
            in_place=in_place,
            pointwise=overload is not None and torch.Tag.pointwise in overload.tags,
            copy=action.name == "aten.copy_.default",
            same_order=same_order(action.name),
            uninitialised=uninitialised(action.name),
            approximation=action.approximation,
            opaque=action.opaque,
            untyped=self._untyped(node),
        )

    def lowered_step(self, node: Node, profile: Profile) -> Step:
        """The step of a node that `profile` turns into a view."""
        result = Result(tensor_type(self.vals[node]), self.values[lowered_base(node, profile)], same_region=True)
        return Step(node.name, "view", (), (result,), contents=Contents.FIRST, lowered=True)

    def _result(self, action: Action, index: int, val: Any) -> Result:
        kind = tensor_type(val)
        if kind is None:
            return Result(None, size=_size(val))
        positions = [
            i for result, i in action.aliases if result in (ALL, index) and not is_scalar(self.vals[action.operands[i]])
        ]
        bases = tuple(self.values[action.operands[i]] for i in positions)
        if not bases:
            return Result(kind)
        if action.maybe or len(set(bases)) > 1:
            return Result(kind, maybe=bases)
        return Result(kind, bases[0], same_region=positions[0] in action.writes or same_order(action.name))

    def _untyped(self, node: Node) -> str | None:
        if self.vals[node] is None and node.users:
            return f"{node.name} has no type: it cannot be run on fake tensors, and its meta['val'] is missing"
        return None

    def _val(self, node: Node) -> Any:
        """What `node` returns, as fake tensors."""
        known = self.trusted.get(node.name)
        same = known is not None and _same_call(known, node) and self.unchanged.issuperset(node.all_input_nodes)
        if not self.trusted or same:
            self.unchanged.add(node)
            val = (known or node).meta.get("val")
            if val is None and node.op in ("placeholder", "get_attr"):
                return self._attribute(node)
            return val
        if node.op != "call_function":
            return self._attribute(node) if node.op == "get_attr" else node.meta.get("val")
        args, kwargs = pytree.tree_map_only(Node, lambda n: self.vals.get(n), (node.args, node.kwargs))
        tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        mode = next((v.fake_mode for v in tensors if hasattr(v, "fake_mode")), None)
        if mode is None:
            return node.meta.get("val")
        try:
            with mode:
                return node.target(*args, **kwargs)  # type: ignore[operator]
        except Exception:  # an operator without a fake kernel: its own metadata is all there is
            return node.meta.get("val")

    def _attribute(self, node: Node) -> Any:
        if node.op != "get_attr":
            return None
        owner: Any = self.graph_module
        for part in str(node.target).split("."):
            owner = getattr(owner, part, None)
        return owner


def tensor_type(val: Any) -> TensorType | None:
    """The type of a fake (or real) tensor; None for anything else."""
    if not isinstance(val, torch.Tensor):
        return None
    return TensorType(
        tuple(_plain(s) for s in val.shape),
        tuple(_plain(s) for s in val.stride()),
        _plain(val.storage_offset()),
        val.element_size(),
        str(val.dtype).removeprefix("torch."),
    )


def _plain(size: int | torch.SymInt) -> Size:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_Integer else expression


def _size(val: Any) -> Size:
    """The expression that a number equals, where the export's input sizes decide it; None where data does."""
    if isinstance(val, bool) or not isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return val if isinstance(val, (int, float)) else None
    expression = val.node.expr
    environment = val.node.shape_env
    free: set[Any] = getattr(expression, "free_symbols", set())
    if environment is not None and any(environment.is_unbacked_symint(symbol) for symbol in free):
        return None
    return expression


def _same_call(a: Node, b: Node) -> bool:
    """Whether two nodes of two graphs are the same call on operands of the same names, however they spell it."""
    if a.op != b.op or (a.op != "get_attr" and a.target != b.target):
        return False
    if repr((a.args, a.kwargs)) == repr((b.args, b.kwargs)):
        return True
    overload = overload_of(a.target)
    return overload is not None and (
        _spell("", a, overload) == _spell("", b, overload)
        and [n.name for n in action_of(a).operands] == [n.name for n in action_of(b).operands]
    )


def _spell(name: str, node: Node, overload: torch._ops.OpOverload | None) -> str:
    """The symbol of a call: operator and attributes, `%` where an operand stands, defaults filled in."""
    owner = node.graph.owning_module
    if overload is None:
        args = [_attribute_text(a, owner) for a in node.args]
        args += [f"{k}={_attribute_text(v, owner)}" for k, v in sorted(node.kwargs.items())]
        return f"{name}({','.join(args)})"
    parts = []
    for index, argument in enumerate(overload._schema.arguments):
        if index < len(node.args):
            value = node.args[index]
        elif argument.name in node.kwargs:
            value = node.kwargs[argument.name]
        elif argument.has_default_value():
            value = argument.default_value
        else:
            value = None
        parts.append(_attribute_text(value, owner))
    return f"{name}({','.join(parts)})"


def _attribute_text(value: Any, owner: Any) -> str:
    if isinstance(value, Node):
        if value.op == "get_attr" and owner is not None:
            module: Any = owner
            for part in str(value.target).split("."):
                module = getattr(module, part)
            if not isinstance(module, torch.Tensor):
                return _module_text(module)
        return "%"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_attribute_text(v, owner) for v in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_attribute_text(v, owner)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, torch.fx.GraphModule):
        return _module_text(value)
    return repr(value)


def _module_text(module: Any) -> str:
    """A digest of a subgraph's structure and constants, or of a delegate's payload."""
    digest = hashlib.sha256()
    if isinstance(module, torch.fx.GraphModule):
        number = {node: str(i) for i, node in enumerate(module.graph.nodes)}
        for node in module.graph.nodes:
            args = pytree.tree_map_only(Node, lambda n: number[n], (node.args, node.kwargs))
            target = "" if node.op in ("placeholder", "output") else str(node.target)
            digest.update(f"{node.op} {target} {args}\n".encode())
            if node.op == "get_attr":
                inner: Any = module
                for part in str(node.target).split("."):
                    inner = getattr(inner, part)
                digest.update(_module_text(inner).encode())
    elif isinstance(module, torch.Tensor):
        digest.update(repr((module.shape, module.dtype, module.stride())).encode())
        digest.update(module.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(payload := getattr(module, "processed_bytes", None), bytes):
        digest.update(payload)
    else:
        return f"object{id(module)}"
    return digest.hexdigest()[:16]
