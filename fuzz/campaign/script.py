"""A failure of a module as a script of its own: it needs torch, executorch and the pass, and shows the numbers."""

from __future__ import annotations

from dataclasses import replace
from string import Template

from copyproof.fuzz.campaign.failure import Failure, Fault
from copyproof.fuzz.campaign.pipelines import PIPELINES
from copyproof.fuzz.programs.stateful import Place, Stateful, Step
from copyproof.spec.pipeline import SHIPPED
from copyproof.verify.exhaustive.script import run_script
from copyproof.verify.passes import folder_of

_SECONDS = 180.0


def script_of(module: Stateful, failure: Failure, pass_name: str, pipeline: str) -> str:
    """The script.

    Args:
        module: the module that fails.
        failure: how.
        pass_name: the pass, `pkg.mod:fn` or `shipped`.
        pipeline: the pipeline by name, or `pkg.mod:name`.
    """
    imports, folders = [], []
    config = "ExecutorchBackendConfig(" + ", ".join(f"{k}={v}" for k, v in PIPELINES.get(pipeline, {}).items()) + ")"
    if pipeline not in PIPELINES:
        name, _, path = pipeline.partition(":")
        imports.append(f"import {name}  # noqa: E402")
        folders.append(str(folder_of(name)))
        config = f"{name}.{path}() if callable({name}.{path}) else {name}.{path}"
    write_back = ""
    if pass_name not in ("shipped", SHIPPED):
        name, _, path = pass_name.partition(":")
        imports.append(f"import {name}  # noqa: E402")
        folders.append(str(folder_of(name)))
        write_back = f"{name}.{path}"
    given = [holder for holder in module.holders if holder.place in (Place.INPUT, Place.POSITION)]
    sizes = "None"
    if any(holder.sizes for holder in given):
        each = ", ".join('{0: torch.export.Dim("n", min=2, max=4)}' if h.sizes else "None" for h in given)
        sizes = f"({each},)"
    return _SCRIPT.substitute(
        fault=Fault[failure.fault].value,
        forms=f"{failure.left} / {failure.right}",
        what="; ".join(part for part in (failure.obligation, failure.shape) if part),
        lines="\n".join(f"    {line}" for line in failure.lines),
        pass_name=pass_name,
        pipeline=pipeline,
        path=repr(["", *sorted(set(folders))]) if folders else repr([""]),
        imports="\n".join(imports),
        model=module.text().rstrip(),
        config=config,
        sizes=sizes,
        write_back=_OWN_PASS.substitute(write_back=write_back) if write_back else _SHIPPED_PASS,
    )


def probed(module: Stateful) -> Stateful:
    """The module that also returns what its buffers held before: a state that it never returns shows so."""
    buffers = [i for i, holder in enumerate(module.holders) if holder.place in (Place.BUFFER, Place.PARAMETER)]
    first, shift = len(module.holders), len(buffers)

    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v + shift if v >= first else v for v in values)

    # Not clones, which the pipeline may drop, and without a constant.
    looks = tuple(Step("add", (buffer, buffer)) for buffer in buffers)
    steps = tuple(replace(step, operands=moved(step.operands)) for step in module.steps)
    return Stateful(module.holders, looks + steps, moved(module.outputs) + tuple(first + i for i in range(shift)))


def shown(text: str, numbers: bool) -> str:
    """What a script prints once it is run, where it shows the failure (exit code 1); else nothing.

    Args:
        text: the script.
        numbers: whether the failure is that numbers differ, and not that something raises or does not answer.
    """
    run = run_script(text, _SECONDS)
    if run is None or run.returncode != 1:
        return ""
    begins = ("call ",) if numbers else ("the runtime", "to_executorch")
    printed = [line for line in run.stdout.splitlines() if line.startswith(begins)]
    return "\n".join(printed)


_SHIPPED_PASS = """    return nullcontext()"""

_OWN_PASS = Template("""    from executorch.exir.program import _program as pipeline

    def write_backs(program):
        result = $write_back(program)
        if isinstance(result, torch.export.ExportedProgram):
            result = result.graph_module, result.graph_signature
        if result[0] is not program.graph_module:
            program.graph_module.graph = result[0].graph
        return program.graph_module, result[1]

    return patch.object(pipeline, "insert_write_back_for_buffers_pass", write_backs)""")

_SCRIPT = Template('''"""$forms differ, by the fault of: $fault.
$what

$lines

Pass: $pass_name; pipeline: $pipeline.

    python THIS_FILE      # prints expected and actual numbers; exit code 1 if they differ
    pytest THIS_FILE      # fails as long as they differ

It needs torch and executorch (and the pass, if it is not the shipped one), and nothing else.
"""

import copy
import logging
import multiprocessing
import sys
import tempfile
import warnings
from contextlib import nullcontext
from unittest.mock import patch  # noqa: F401

sys.path[:0] = $path
warnings.simplefilter("ignore")
logging.disable(logging.ERROR)

from executorch.exir import ExecutorchBackendConfig, to_edge  # noqa: E402
$imports

$model


def the_pass():
    """Puts the write-back pass into the pipeline."""
$write_back


def lowered():
    """The .pte file, and the places of the inputs that are mutated."""
    export = torch.export.export(Model(), calls()[2], dynamic_shapes=$sizes)
    edge = to_edge(export)
    signature = edge.exported_program().graph_signature
    inputs = [s.arg.name for s in signature.input_specs if s.kind.name == "USER_INPUT"]
    mutated = [inputs.index(name) for name in signature.user_inputs_to_mutate.values()]
    with the_pass():
        return edge.to_executorch($config).buffer, mutated


def expected():
    """For each call the outputs, and the inputs afterwards, in eager PyTorch."""
    model, found = Model(), []
    for arguments in calls():
        given = copy.deepcopy(arguments)
        with torch.no_grad():
            outputs = model(*given)
        found.append(([value.clone() for value in outputs], list(given)))
    return found


def run_file(file, mutated, path):
    """Runs the file in the runtime; the new values of mutated inputs come first."""
    from executorch.extension.pybindings import portable_lib

    module, found = portable_lib._load_for_executorch_from_buffer(file), []
    for arguments in calls():
        given = copy.deepcopy(arguments)
        outputs = [value.clone() for value in module.run_method("forward", given, clone_outputs=True)]
        after = list(given)
        for place, value in zip(mutated, outputs):
            after[place] = value
        found.append((outputs[len(mutated) :], after))
    torch.save(found, path)


def actual():
    """The same from the runtime, in a process of its own, since it may abort; an error as a sentence."""
    try:
        file, mutated = lowered()
    except Exception as error:
        return f"to_executorch fails: {error}"
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/found.pt"
        process = multiprocessing.get_context("fork").Process(target=run_file, args=(file, mutated, path))
        process.start()
        process.join(60)
        if process.exitcode != 0:
            process.kill()
            return f"the runtime did not answer: exit code {process.exitcode}"
        return torch.load(path)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def main():
    """Prints where the numbers differ; whether they do."""
    does = actual()
    if isinstance(does, str):
        print(does)
        return True
    differ = False
    for call, (should, got) in enumerate(zip(expected(), does)):
        for what, wanted, values in (("output", should[0], got[0]), ("input afterwards", should[1], got[1])):
            if len(wanted) != len(values):
                differ = True
                print(f"call {call}: expected {len(wanted)} values of kind {what}, got {len(values)}")
            for place, (a, b) in enumerate(zip(wanted, values)):
                if not same(a, b):
                    differ = True
                    kinds = f"{a.dtype}, {b.dtype}"
                    print(f"call {call}, {what} {place} ({kinds}): expected {a.tolist()}, got {b.tolist()}")
    if not differ:
        print("all calls gave the expected numbers")
    return differ


def test_the_runtime_gives_what_eager_gives():
    assert not main()


if __name__ == "__main__":
    sys.exit(main())
''')
