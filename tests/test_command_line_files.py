"""What a user of `copyproof prove` with `.pte` files, and of `--through executorch`, sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

from copyproof.impl import reference_pass
from copyproof.verify import BadInput
from copyproof.verify.corpus import find
from copyproof.verify.corpus.delegated_models import DELEGATED_MODELS
from copyproof.verify.corpus.example import export
from copyproof.verify.serialized import File

from .command_line import run, sentence
from .lowering import file_of

XNNPACK = "executorch.backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner"


pytestmark = pytest.mark.usefixtures("restored")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, files that are right, and files that are wrong."""
    made = tmp_path_factory.mktemp("files")
    for name in ("swap_pair", "cond_two_alive"):
        torch.export.save(export(find(name)), str(made / f"{name}.pt2"))
        (made / f"{name}_shipped.pte").write_bytes(file_of(find(name), None))
        (made / f"{name}_reference.pte").write_bytes(file_of(find(name), reference_pass))
    return made


def test_right_file_is_proved(folder: Path) -> None:
    result = run("prove", folder / "swap_pair.pt2", folder / "swap_pair_reference.pte")
    assert result.exit_code == 0, result.output
    assert "at fault" not in result.stdout


def test_wrong_file_is_refuted_with_the_stage_and_the_numbers_of_the_runtime(folder: Path) -> None:
    result = run("prove", folder / "swap_pair.pt2", folder / "swap_pair_shipped.pte")
    assert result.exit_code == 1, result.output
    assert "at fault: the write-back pass of the shipped pipeline, which makes just this file" in result.stdout
    assert "should come from the old contents of 'q'" in result.stdout
    assert "in the runtime: call" in result.stdout


def test_pass_through_the_pipeline_is_refuted_with_the_stage_at_fault(folder: Path) -> None:
    result = run("prove", folder / "swap_pair.pt2", "--pass", "shipped", "--through", "executorch", "--json")
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout)
    assert report["stage"] == "the write-back pass"
    assert any("expected" in line for line in report["witness"])
    assert run("prove", folder / "swap_pair.pt2", "--through", "executorch").exit_code == 0


def test_planner_at_fault_is_shown_with_who_owned_which_bytes(folder: Path) -> None:
    result = run("prove", folder / "cond_two_alive.pt2", "--through", "executorch")
    assert result.exit_code == 1, result.output
    assert "at fault: the memory plan" in result.stdout
    assert "cond_1.else.aten_sub_tensor where it should read cond.else.aten_mul_tensor" in result.stdout
    assert "bytes  0 to 16" in result.stdout


def test_configuration_is_used_for_lowering(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "configurations.py").write_text(
        "from executorch.exir import ExecutorchBackendConfig\n"
        "def unnamed():\n    return ExecutorchBackendConfig(emit_mutable_buffer_names=False)\n"
        "nothing = 3\n"
    )
    monkeypatch.chdir(folder)
    through = ("prove", "swap_pair.pt2", "--through", "executorch", "--config")
    assert run(*through, "configurations:unnamed").exit_code == 0
    assert "expected an ExecutorchBackendConfig" in sentence(run(*through, "configurations:nothing"))
    assert "cannot be imported" in sentence(run(*through, "configurations:missing"))


def test_delegated_model_is_proved_with_its_partitioner_and_unknown_without(tmp_path: Path) -> None:
    example = DELEGATED_MODELS[0]
    model, program = tmp_path / "model.pt2", tmp_path / "program.pte"
    torch.export.save(export(example), str(model))
    program.write_bytes(file_of(example, reference_pass))
    assert run("prove", model, "--partitioner", XNNPACK, "--through", "executorch").exit_code == 0
    without = run("prove", model, program)
    assert without.exit_code == 3, without.output
    assert "a delegate that the model has not" in without.stdout


def test_options_that_do_not_go_together_are_one_sentence(folder: Path) -> None:
    model, file = folder / "swap_pair.pt2", folder / "swap_pair_shipped.pte"
    assert "add --through executorch" in sentence(run("prove", model, "--config", "a:b"))
    assert "proved against its model alone" in sentence(run("prove", model, file, "--pass", "shipped"))
    assert "is a .pte file; give its model first" in sentence(run("prove", file))
    assert "drop them" in sentence(run("prove", model, "--through", "executorch", "--dialect", "aten"))
    assert "give it after the model" in sentence(run("prove", model, "--method", "other"))
    assert "has the methods forward, expected other" in sentence(run("prove", model, file, "--method", "other"))


@pytest.mark.parametrize("contents", [None, b"", b"not a program"], ids=["missing", "empty", "text"])
def test_file_that_is_no_program_is_one_sentence(folder: Path, tmp_path: Path, contents: bytes | None) -> None:
    file = tmp_path / "program.pte"
    if contents is not None:
        file.write_bytes(contents)
    line = sentence(run("prove", folder / "swap_pair.pt2", file))
    assert ("there is no file" if contents is None else "it cannot be read as a .pte file") in line
    file.write_bytes((folder / "swap_pair.pt2").read_bytes())
    assert "it is an archive, as .pt2 files are" in sentence(run("prove", folder / "swap_pair.pt2", file))


def test_truncated_file_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "swap_pair_reference.pte").read_bytes()
    file = tmp_path / "program.pte"
    for quarter in range(4):
        file.write_bytes(whole[: len(whole) * quarter // 4])
        assert "lower the model again" in sentence(run("prove", folder / "swap_pair.pt2", file))


def test_other_schema_version_is_bad_input(folder: Path) -> None:
    file = deserialize_pte_binary((folder / "swap_pair_reference.pte").read_bytes())
    file.program.version = 7
    with pytest.raises(BadInput, match="schema version 7, expected 0, which ExecuTorch"):
        File(bytes(serialize_pte_binary(file)))


def test_instruction_of_an_unknown_kind_is_bad_input(folder: Path) -> None:
    file = File((folder / "swap_pair_reference.pte").read_bytes())
    file.plans["forward"].chains[0].instructions[1].instr_args = None
    with pytest.raises(BadInput, match=r"instruction 1 of the \.pte file is of no kind that ExecuTorch"):
        file.machine("forward")


def test_pass_that_raises_in_the_pipeline_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "raising.py").write_text("def raises(p):\n    raise KeyError('b')\n")
    monkeypatch.chdir(folder)
    line = sentence(run("prove", "swap_pair.pt2", "--pass", "raising:raises", "--through", "executorch"))
    assert "the pass raised KeyError" in line
