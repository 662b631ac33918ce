"""A refuted program as a script that runs by itself, with torch and executorch alone, and is a failing test as well.

Where every step of the program is one that ExecuTorch's pipeline can lower, the script puts the graph into the pipeline
at the point where write-backs are inserted, and runs the file in the runtime. Steps that cannot stand there (in-place
operators, views by schema) run over real memory instead, by an interpreter in which `copy_` writes and a lowered view
is one. The right numbers are those of the functional meaning.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from string import Template

from copyproof.spec.pipeline import SHIPPED
from copyproof.spec.program import Role
from copyproof.verify.exhaustive.build import SHAPE, call_of, weights_of
from copyproof.verify.exhaustive.recipe import Act, Kind, Recipe
from copyproof.verify.passes import folder_of

_LOWERS = frozenset({Kind.PURE, Kind.PURE_OF_TWO, Kind.LOWERED, Kind.CLONE, Kind.SEVERAL})


def in_runtime(recipe: Recipe) -> bool:
    """Whether the pipeline can lower the program, so that its script runs it in the runtime."""
    return all(step.kind in _LOWERS for step in recipe.steps)


def _places(recipe: Recipe) -> tuple[Where, ...]:
    """Where a program can run so that a fault may show: what it neither returns nor gives back shows in no runtime."""
    if not in_runtime(recipe):
        return (Where.MEMORY,)
    silent = not recipe.outputs and Role.USER_INPUT not in recipe.targets
    return (Where.PROBED, Where.MEMORY) if silent else tuple(Where)


class Where(Enum):
    """Where a script runs the rewritten program; the value says it."""

    RUNTIME = "The file is lowered by ExecuTorch's pipeline and runs in its runtime."
    PROBED = (
        "The file is lowered by ExecuTorch's pipeline and runs in its runtime; the program also returns what each "
        "buffer held before, for that to be seen."
    )
    MEMORY = (
        "The rewritten graph runs over real memory in PyTorch: the pipeline cannot lower such steps, or not show it."
    )


def script_of(recipe: Recipe, pass_name: str, fault: str, where: Where, expression: str = "", setup: str = "") -> str:
    """The script for a program that a pass gets wrong.

    Args:
        recipe: the program.
        where: where to run what the pass made of it.
        pass_name: the pass, `pkg.mod:fn` or `shipped`.
        fault: what is wrong, for its first line.
        expression: Python that makes the pass out of what `pass_name` names; empty where that is the pass itself.
        setup: an import that `expression` needs.
    """
    module, _, function = (SHIPPED if pass_name == "shipped" else pass_name).partition(":")
    names, first = recipe.names, recipe.bystander + 1
    buffers = list(recipe.buffers)
    steps = [
        _line(names[first + place], step, place, [names[o] for o in step.operands])
        for place, step in enumerate(recipe.steps)
    ]
    returned = [names[v] for v in (*recipe.sources, *recipe.outputs)]
    if where is Where.PROBED:
        steps = [f"old_{n} = call('old_{n}', aten.clone.default, {n})" for n in buffers] + steps
        returned += [f"old_{n}" for n in buffers]
    return _SCRIPT.substitute(
        fault=fault,
        pass_name=pass_name,
        program="\n".join(f"    {line}" for line in recipe.as_lines()),
        where_said=where.value,
        folder=str(folder_of(module)),
        module=module,
        function=function.split(".")[0],
        the_pass=expression or function,
        setup=f"{setup}  # noqa: E402\n" if setup else "",
        shape=repr(list(SHAPE)),
        buffers=repr(buffers),
        inputs=repr([n for n in names[:first] if n not in buffers]),
        targets=repr(list(names[: len(recipe.targets)])),
        outputs=len(returned) - len(recipe.sources),
        steps="\n".join(f"    {line}" for line in steps) or "    # no step",
        unpacked=", ".join(names[:first]),
        returned=", ".join(returned),
        actual=_IN_MEMORY if where is Where.MEMORY else _IN_RUNTIME,
    )


def _line(name: str, step: Act, place: int, operands: list[str]) -> str:
    """One step as a line of the script."""
    operator, more = call_of(step, place)
    if step.kind is Kind.PURE:
        # The pipeline would lift a number out of `mul.Tensor` before it inserts write-backs.
        return f"{name} = call({name!r}, aten.mul.Scalar, {operands[0]}, {more[0]})"
    packet, overload = str(operator).removeprefix("aten.").rsplit(".", 1)
    arguments = ", ".join([*operands, *map(repr, more)])
    arguments += "".join(f", {key}={value}" for key, value in weights_of(step, place).items())
    item = ", item=0" if step.kind is Kind.SEVERAL else ""
    return f"{name} = call({name!r}, aten.{packet}.{overload}, {arguments}{item})"


_SCRIPT = Template("""\"\"\"$fault

The pass $pass_name is wrong on this program:

$program

    python THIS_FILE      # prints expected and actual numbers; exit code 1 if they differ
    pytest THIS_FILE      # fails as long as they differ

It needs torch, executorch and the pass, and nothing else. $where_said
\"\"\"

import logging
import operator
import sys
import warnings
from unittest.mock import patch

import torch
from torch.export import ExportedProgram, ExportGraphSignature, export
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

sys.path[:0] = ["", "$folder"]
warnings.simplefilter("ignore")
logging.disable(logging.ERROR)

from $module import $function  # noqa: E402
$setup
WRITE_BACK_PASS = $the_pass
SHAPE = $shape
BUFFERS = $buffers
INPUTS = $inputs
TARGETS = $targets
CALLS = 3


def steps(call, aten, $unpacked):
    \"\"\"The program: the new value of each target, then what is returned.\"\"\"
$steps
    return [$returned]


def start(name):
    \"\"\"What a buffer holds at the start.\"\"\"
    return torch.arange(4.0).reshape(SHAPE) + 10 * (BUFFERS.index(name) + 1)


class Frame(torch.nn.Module):
    \"\"\"Has the program's buffers, inputs, targets and number of outputs; its graph is replaced.\"\"\"

    def __init__(self):
        super().__init__()
        for name in BUFFERS:
            self.register_buffer(name, start(name))

    def forward(self, *inputs):
        given = dict(zip(INPUTS, inputs))
        value, returned = given["x"], []
        for name in TARGETS:
            value = value + given["x"]
            (getattr(self, name) if name in BUFFERS else given[name]).copy_(value)
        for _ in range($outputs):
            value = value + given["x"]
            returned.append(value)
        return tuple(returned)


def examples(call):
    \"\"\"The inputs of a call.\"\"\"
    return tuple(torch.arange(1.0, 5.0).reshape(SHAPE) * (call + 1) + 4 * k for k in range(len(INPUTS)))


def with_the_graph(program, aten):
    \"\"\"Gives a program of Frame the graph of `steps`; returns the placeholder of each buffer and input.\"\"\"
    graph, nodes, placeholders = torch.fx.Graph(), {}, {}
    specs = program.graph_signature.input_specs
    buffers = {spec.arg.name: spec.target for spec in specs if spec.target in BUFFERS}
    free = iter(INPUTS)
    for old in program.graph.nodes:
        if old.op == "placeholder":
            name = buffers.get(old.name) or next(free)
            nodes[name] = graph.create_node("placeholder", old.target, name=old.name)
            nodes[name].meta = dict(old.meta)
            placeholders[name] = nodes[name].name

    def call(name, target, *args, item=None, **kwargs):
        node = graph.create_node("call_function", target, args, kwargs, name=name)
        values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
        with nodes["x"].meta["val"].fake_mode:
            node.meta["val"] = target(*values, **kwargs)
        if item is None:
            return node
        part = graph.create_node("call_function", operator.getitem, (node, item), {}, name=f"{name}_{item}")
        part.meta["val"] = node.meta["val"][item]
        return part

    returned = steps(call, aten, *[nodes[name] for name in [*TARGETS, "x"]])
    graph.output(tuple(returned))
    mutations = []
    for name, node in zip(TARGETS, returned):
        buffer = name in BUFFERS
        kind = OutputKind.BUFFER_MUTATION if buffer else OutputKind.USER_INPUT_MUTATION
        mutations.append(OutputSpec(kind, TensorArgument(node.name), name if buffer else placeholders[name]))
    rest = returned[len(TARGETS) :]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in rest]
    program.graph_module.graph = graph
    program._graph_signature = ExportGraphSignature(list(specs), mutations + outputs)
    return placeholders


def exported():
    \"\"\"The program over ATen operators, and the placeholder of each buffer and input.\"\"\"
    program = export(Frame(), examples(0)).run_decompositions({})
    return program, with_the_graph(program, torch.ops.aten)


def rewritten(program):
    \"\"\"What the pass makes of a program: its graph module and signature.\"\"\"
    result = WRITE_BACK_PASS(program)
    return (result.graph_module, result.graph_signature) if isinstance(result, ExportedProgram) else result


def run_graph(graph_module, memory, lowered):
    \"\"\"Runs a graph step by step over `memory`, by placeholder: what writes, writes there. Where it is lowered, a
    `view_copy` that is not returned is a view, as in ExecuTorch. Outputs are read after the last step.\"\"\"
    values, output = {}, graph_module.graph.output_node()
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            values[node] = memory[node.name]
        elif node.op == "call_function":
            base = node
            while lowered and node not in output.all_input_nodes and base.target is torch.ops.aten.view_copy.default:
                base = base.args[0]
            if base is node:
                values[node] = node.target(*torch.fx.map_arg(node.args, values.get), **node.kwargs)
            else:
                values[node] = values[base].view(SHAPE)
    return [values[node].clone() for node in output.args[0]]


def expected():
    \"\"\"For each call what the functional meaning gives: outputs, then the new value of each target.\"\"\"
    program, placeholders = exported()
    state, found = {name: start(name) for name in BUFFERS}, []
    for call in range(CALLS):
        memory = {placeholders[n]: v.clone() for n, v in {**state, **dict(zip(INPUTS, examples(call)))}.items()}
        returned = run_graph(program.graph_module, memory, lowered=False)
        new = dict(zip(TARGETS, returned))
        state.update((name, new[name]) for name in BUFFERS if name in new)
        found.append((returned[len(TARGETS) :], new))
    return found


$actual


def main():
    \"\"\"Prints where the numbers differ; whether they do.\"\"\"
    differ = False
    for call, (should, does) in enumerate(zip(expected(), actual())):
        pairs = [(f"output {i}", a, b) for i, (a, b) in enumerate(zip(should[0], does[0], strict=True))]
        pairs += [(text, should[1][name], value) for text, name, value in does[1]]
        for name, a, b in pairs:
            same = torch.equal(a, b)
            differ = differ or not same
            if not same:
                print(f"call {call}, {name}: expected {a.tolist()}, got {b.tolist()}")
    if not differ:
        print(f"{CALLS} calls gave the expected numbers")
    return differ


def test_rewritten_program_computes_what_the_original_means():
    assert not main()


if __name__ == "__main__":
    sys.exit(main())
""")

_IN_MEMORY = """def actual():
    \"\"\"The same of the rewritten graph, run over real memory.\"\"\"
    program, placeholders = exported()
    graph_module, _ = rewritten(program)
    state, found = {name: start(name) for name in BUFFERS}, []
    for call in range(CALLS):
        given = dict(zip(INPUTS, examples(call)))
        memory = {placeholders[name]: value for name, value in {**state, **given}.items()}
        try:
            returned = run_graph(graph_module, memory, lowered=True)
        except (KeyError, RuntimeError) as error:
            sys.exit(f"the rewritten graph cannot run: {error}")
        held = [(name, name, {**state, **given}[name].clone()) for name in TARGETS]
        named = [(f"what the signature names for {name}", name, v) for name, v in zip(TARGETS, returned)]
        found.append((returned[len(TARGETS) :], held + named))
    return found"""

_IN_RUNTIME = """def actual():
    \"\"\"The same of the file that ExecuTorch makes with the pass, in its runtime; a buffer shows in later calls.\"\"\"
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.dialects._ops import ops as exir_ops
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
    from executorch.exir.program import _program as pipeline
    from executorch.extension.pybindings import portable_lib

    def write_backs(program):
        with_the_graph(program, exir_ops.edge.aten)
        graph_module, signature = rewritten(program)
        if graph_module is not program.graph_module:
            program.graph_module.graph = graph_module.graph
        return program.graph_module, signature

    edge = to_edge(export(Frame(), examples(0)))
    with patch.object(pipeline, "insert_write_back_for_buffers_pass", write_backs):
        config = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(BUFFERS)])
        file = edge.to_executorch(config).buffer
    module, found = portable_lib._load_for_executorch_from_buffer(file), []
    for call in range(CALLS):
        outputs = [value.clone() for value in module.run_method("forward", examples(call), clone_outputs=True)]
        inputs = [name for name in TARGETS if name in INPUTS]  # their new values come first
        found.append((outputs[len(inputs) :], [(name, name, value) for name, value in zip(inputs, outputs)]))
    return found"""


@dataclass(frozen=True)
class Seen:
    """A script, where it runs the program, and what it printed when it was run."""

    text: str
    where: Where
    printed: str


def seen(
    recipe: Recipe, pass_name: str, fault: str, expression: str = "", setup: str = "", timeout: float = 120.0
) -> Seen | None:
    """The script for a program that a pass gets wrong, once it has been run and the numbers differed: in the runtime if
    it shows there, else over memory; None if it shows nowhere.

    Args:
        recipe, pass_name, fault, expression, setup: as of `script_of`.
        timeout: seconds for one run.
    """
    for where in _places(recipe):
        text = script_of(recipe, pass_name, fault, where, expression, setup)
        run = run_script(text, timeout)
        if run is not None and run.returncode == 1 and ("expected" in run.stdout or "cannot run" in run.stderr):
            return Seen(text, where, (run.stdout + run.stderr).strip())
    return None


def run_script(text: str, timeout: float) -> subprocess.CompletedProcess[str] | None:
    """What a script prints and how it ends, in a folder of its own; None where it does not end in time.

    Args:
        text: the script.
        timeout: seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "repro.py")
        path.write_text(text)
        try:
            return subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return None
