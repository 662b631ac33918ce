"""What a user of `copyproof prove` and `copyproof place` sees: exit codes, tables, JSON, and one sentence per error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from copyproof.verify.corpus import find
from copyproof.verify.corpus.example import export

from .command_line import run, sentence

pytestmark = pytest.mark.usefixtures("restored")
SHIPPED = "executorch.exir.passes.insert_write_back_for_buffers_pass:insert_write_back_for_buffers_pass"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few exported models."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("swap_pair", "counter_scalar", "view_chain_matmul", "cond_select_cache"):
        torch.export.save(export(find(name)), str(folder / f"{name}.pt2"))
    return folder


def test_help_answers_without_importing_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from copyproof.command.main import main; "
        "assert CliRunner().invoke(main, ['prove', '--help']).exit_code == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reference_pass_is_proved_obligation_by_obligation(models: Path) -> None:
    result = run("prove", models / "swap_pair.pt2")
    assert result.exit_code == 0, result.output
    for obligation in ("ORDER", "STATE", "OUTPUT", "FRAME", "EFFECTS", "SIGNATURE", "EARLIEST", "LIFETIME"):
        assert obligation in result.stdout


def test_shipped_pass_is_refuted_with_numbers_that_differ(models: Path) -> None:
    result = run("prove", models / "swap_pair.pt2", "--pass", SHIPPED)
    assert result.exit_code == 1, result.output
    assert "lost write: nothing writes buffer 'p'" in result.stdout
    assert "but is" in result.stdout


def test_pass_of_the_users_own_is_found_in_the_current_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (models / "my_own_pass.py").write_text("from copyproof.impl import reference_pass as mine\n")
    monkeypatch.chdir(models)
    assert run("prove", "counter_scalar.pt2", "--pass", "my_own_pass:mine").exit_code == 0


def test_placed_program_is_proved_against_its_model(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt2"
    placed = run("place", models / "view_chain_matmul.pt2", "-o", out)
    assert placed.exit_code == 0, placed.output
    assert "most bytes live" in placed.stdout
    proved = run("prove", models / "view_chain_matmul.pt2", out)
    assert proved.exit_code == 0, proved.output


def test_placed_program_of_another_model_is_bad_input(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt2"
    run("place", models / "view_chain_matmul.pt2", "-o", out)
    assert "other placeholders" in sentence(run("prove", models / "swap_pair.pt2", out))


def test_aten_dialect_places_and_proves_control_flow(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt2"
    placed = run("place", models / "cond_select_cache.pt2", "-o", out, "--dialect", "aten")
    assert placed.exit_code == 0, placed.output
    assert run("prove", models / "cond_select_cache.pt2", out, "--dialect", "aten").exit_code == 0


def test_edge_program_with_control_flow_cannot_be_saved_and_the_old_file_stays(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt2"
    out.write_text("precious")
    assert "--dialect aten" in sentence(run("place", models / "cond_select_cache.pt2", "-o", out))
    assert out.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [out]


def test_several_models_give_the_worst_exit_code(models: Path) -> None:
    result = run("prove", models / "counter_scalar.pt2", models / "swap_pair.pt2", "--pass", SHIPPED)
    assert result.exit_code == 1
    assert "PROVED" in result.stdout
    missing = run("prove", models / "counter_scalar.pt2", models / "missing.pt2", "--each")
    assert missing.exit_code == 2
    assert "PROVED" in missing.stdout


def test_json_gives_verdict_obligations_conflicts_and_statistics(models: Path) -> None:
    result = run("prove", models / "swap_pair.pt2", "--pass", SHIPPED, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["verdict"] == "REFUTED"
    by_name = {o["name"]: o for o in found["obligations"]}
    assert by_name["STATE"]["verdict"] == "REFUTED"
    assert set(by_name["STATE"]) >= {"name", "verdict", "seconds", "approximations"}
    assert found["program"]["targets"] == 2
    assert found["conflicts"] == [] and found["witness"]


def test_strict_lets_quality_count(models: Path) -> None:
    shipped = run("prove", models / "counter_scalar.pt2", "--pass", SHIPPED)
    assert shipped.exit_code == 0
    assert run("prove", models / "counter_scalar.pt2", "--pass", SHIPPED, "--strict").exit_code == 1


def test_smt2_files_are_kept(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    assert run("prove", models / "swap_pair.pt2", "--emit-smt2", folder).exit_code == 0
    assert (folder / "STATE.smt2").read_text().count("check-sat") == 1


@pytest.mark.parametrize(
    ("contents", "expected"),
    [(None, "there is no file"), (b"", "is not a .pt2 file"), (b"hello", "is not a .pt2 file")],
    ids=["missing", "empty", "text"],
)
def test_file_that_is_no_model_is_one_sentence(tmp_path: Path, contents: bytes | None, expected: str) -> None:
    file = tmp_path / "model.pt2"
    if contents is not None:
        file.write_bytes(contents)
    assert expected in sentence(run("prove", file))
    assert expected in sentence(run("place", file, "-o", tmp_path / "out.pt2"))


def test_truncated_model_is_one_sentence(models: Path, tmp_path: Path) -> None:
    whole = (models / "swap_pair.pt2").read_bytes()
    file = tmp_path / "model.pt2"
    file.write_bytes(whole[: len(whole) // 2])
    assert "is cut off" in sentence(run("prove", file))


def test_edge_program_given_as_the_model_is_one_sentence(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt2"
    run("place", models / "swap_pair.pt2", "-o", out)
    assert "is an Edge program" in sentence(run("prove", out))


def test_archive_that_holds_something_else_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "model.pt2"
    torch.save({"weights": torch.ones(2)}, file)
    assert "is no exported program" in sentence(run("prove", file))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere", "not of the form pkg.mod:name"),
        ("nowhere:fn", "cannot be imported"),
        ("copyproof.impl:nothing", "cannot be imported"),
        ("copyproof.spec.rule:REFERENCE", "expected a callable"),
    ],
)
def test_pass_that_cannot_be_used_is_one_sentence(models: Path, name: str, expected: str) -> None:
    assert expected in sentence(run("prove", models / "swap_pair.pt2", "--pass", name))


def test_pass_that_raises_or_returns_something_else_is_one_sentence(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (models / "bad_passes.py").write_text("def raises(p):\n    raise KeyError('b')\ndef returns(p):\n    return 3\n")
    monkeypatch.chdir(models)
    assert "raised KeyError" in sentence(run("prove", "swap_pair.pt2", "--pass", "bad_passes:raises"))
    assert "returned int" in sentence(run("prove", "swap_pair.pt2", "--pass", "bad_passes:returns"))


def test_pass_that_leaves_the_interpreter_is_one_sentence(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (models / "leaving.py").write_text("import sys\ndef leaves(p):\n    sys.exit(0)\n")
    (models / "leaving_module.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(models)
    assert "raised SystemExit" in sentence(run("prove", "swap_pair.pt2", "--pass", "leaving:leaves"))
    assert "cannot be imported" in sentence(run("prove", "swap_pair.pt2", "--pass", "leaving_module:f"))


def test_pass_that_prints_does_not_break_the_json(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (models / "printing.py").write_text(
        "from copyproof.impl import reference_pass\ndef prints(p):\n    print('hello')\n    return reference_pass(p)\n"
    )
    monkeypatch.chdir(models)
    result = run("prove", "swap_pair.pt2", "--pass", "printing:prints", "--json")
    assert json.loads(result.stdout)["pass"] == "printing:prints"


def test_model_is_not_replaced_by_its_own_placement(models: Path) -> None:
    before = (models / "swap_pair.pt2").read_bytes()
    assert "is the model itself" in sentence(run("place", models / "swap_pair.pt2", "-o", models / "swap_pair.pt2"))
    assert (models / "swap_pair.pt2").read_bytes() == before


def test_input_named_as_a_python_builtin_is_placed_in_aten(tmp_path: Path) -> None:
    file, out = tmp_path / "model.pt2", tmp_path / "out.pt2"
    torch.export.save(torch.export.export(torch.nn.BatchNorm1d(2).train(), (torch.randn(4, 2),)), str(file))
    placed = run("place", file, "-o", out, "--dialect", "aten")
    assert placed.exit_code == 0, placed.output
    assert run("prove", file, out, "--dialect", "aten").exit_code == 0


def test_rewritten_program_with_other_weights_is_refuted(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for name in ("one", "two"):
        exported = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(2),))
        torch.export.save(exported, str(tmp_path / f"{name}.pt2"))
    run("place", tmp_path / "two.pt2", "-o", tmp_path / "placed.pt2")
    result = run("prove", tmp_path / "one.pt2", tmp_path / "placed.pt2")
    assert result.exit_code == 1, result.output
    assert "starts with other contents than in the original" in result.stdout


def test_model_with_an_unknown_operator_names_it(tmp_path: Path) -> None:
    code = (
        "import torch\n"
        "@torch.library.custom_op('copyproof_cli::odd', mutates_args=())\n"
        "def odd(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n"
        "@odd.register_fake\n"
        "def _(x):\n    return torch.empty_like(x)\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.ops.copyproof_cli.odd(x)\n"
        f"torch.export.save(torch.export.export(M(), (torch.ones(2),)), {str(tmp_path / 'odd.pt2')!r})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    line = sentence(run("prove", tmp_path / "odd.pt2"))
    assert "odd" in line.partition("cannot be loaded")[2] and "--import" in line


def test_bad_options_are_refused(models: Path, tmp_path: Path) -> None:
    model = models / "swap_pair.pt2"
    assert "--import no_such_module failed" in sentence(run("prove", model, "--import", "no_such_module"))
    assert "there is no such operator" in sentence(run("prove", model, "--preserve", "aten.nothing.default"))
    assert "must end in .pt2" in sentence(run("place", model, "-o", tmp_path / "out.txt"))
    assert "make it first" in sentence(run("place", model, "-o", tmp_path / "no" / "out.pt2"))
    assert run("prove", model, "--timeout", "-1").exit_code == 2
    assert run("prove").exit_code == 2
