"""Damaged `.pte` files: each is bad input or gets a verdict in bounded time and memory, and no false proof."""

from __future__ import annotations

import resource
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from time import monotonic
from traceback import format_exception

import pytest
from executorch.exir.schema import KernelCall
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import ExportedProgram

from copyproof.fuzz.compare import differences
from copyproof.fuzz.execution import Call, mutated_inputs, run_eager
from copyproof.fuzz.runtime import RuntimeFailure, run_program
from copyproof.impl import reference_pass
from copyproof.spec.obligations import Verdict
from copyproof.verify import BadInput
from copyproof.verify.corpus import Example, find
from copyproof.verify.corpus.example import calls_of, export
from copyproof.verify.program import Meaning, prove_program
from copyproof.verify.serialized import File, recognised
from copyproof.verify.verdicts import Report

from .lowering import edge_of, file_of, program_of

NAMES = ("swap_pair", "cond_select_cache", "delegated_gru")
"""Kernels over planned memory; jumps; a delegate with named data."""

MUTATIONS = 10_000
"""How many the campaign tries, over all files."""

MOST_SECONDS = 10.0
MOST_MEGABYTES = 256
"""What one proof may take, beyond what the process has taken before."""

MOST_TOLD = 40
_SMALL = range(48)
_HUGE = (0x7FFF, 0xFFFF, 0x10000, 0x00FFFFFF, 0x7FFFFFF0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFE, 0xFFFFFFFF)


class _TooLong(BaseException):
    """Raised by the alarm; no `except Exception` on the way can take it for a damaged file."""


@cache
def example_of(name: str) -> Example:
    return find(name)


@cache
def model_of(name: str) -> ExportedProgram:
    example = example_of(name)
    return edge_of(example).exported_program() if example.partition else program_of(example)


@cache
def meaning_of(name: str) -> Meaning:
    return Meaning(model_of(name))


@cache
def file_named(name: str) -> bytes:
    return file_of(example_of(name), reference_pass)


@cache
def expected_of(name: str) -> list[Call]:
    return run_eager(export(example_of(name)).module(), calls_of(example_of(name)))


@cache
def arguments_of(whole: bytes) -> list[list[int]]:
    """Where the arguments of each kernel call stand in a file, call by call."""
    found = []
    for instruction in File(whole).plans["forward"].chains[0].instructions:
        if isinstance(instruction.instr_args, KernelCall):
            given = [len(instruction.instr_args.args), *instruction.instr_args.args]
            at = whole.index(struct.pack(f"<{len(given)}i", *given))
            found.append([at + 4 * position for position in range(1, len(given))])
    return found


def damaged(whole: bytes, random: Random) -> bytes:
    """`whole` with one to four faults, each in bytes of its own choice."""
    changed = bytearray(whole)
    for _ in range(random.choice((1, 1, 1, 1, 2, 4))):
        at = random.randrange(len(changed))
        length = random.choice((1, 2, 4, 8, 16, 64))
        other = random.randrange(len(changed))
        field = at & ~3
        match random.randrange(10):
            case 0:
                changed[at] ^= random.randrange(1, 256)
            case 1:
                changed[at : at + length] = bytes(random.randrange(256) for _ in changed[at : at + length])
            case 2:
                changed[at : at + length] = bytes(len(changed[at : at + length]))
            case 3:
                changed[at:at] = changed[at : at + length]
            case 4:
                copied = changed[other : other + length]
                changed[at : at + len(copied)] = copied
            case 5:
                low, high = sorted((at & ~3, other & ~3))
                length = min(length, high - low, len(changed) - high)
                first, second = changed[low : low + length], changed[high : high + length]
                changed[low : low + length], changed[high : high + length] = second, first
            case 6:
                argument = random.choice(random.choice(arguments_of(whole)))
                changed[argument : argument + 4] = random.choice(_SMALL).to_bytes(4, "little")
            case 7 | 8:
                changed[field : field + 4] = random.choice(_SMALL).to_bytes(4, "little")
            case _:
                changed[field : field + 4] = random.choice(_HUGE).to_bytes(4, "little")
    return bytes(changed)


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises `_TooLong` in the block when the time is over."""

    def ring(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fault(name: str, pte: bytes, report: Report | BaseException | None, seconds: float, megabytes: float) -> str:
    """What is wrong with how a damaged file was judged; empty where nothing is."""
    if isinstance(report, _TooLong) or seconds > MOST_SECONDS:
        where = "".join(format_exception(report)) if isinstance(report, BaseException) else ""
        return f"takes {seconds:.1f} s {where}"
    if megabytes > MOST_MEGABYTES:
        return f"takes {megabytes:.0f} MB"
    if isinstance(report, BaseException):
        return "" if isinstance(report, BadInput) else "".join(format_exception(report))
    assert report is not None
    if report.verdict is not Verdict.PROVED or pte == file_named(name):
        return ""
    example = example_of(name)
    try:
        # The runtime may refuse what a proof of the calls does not look at; it may not compute something else.
        actual = run_program(pte, calls_of(example), example.imports, mutated_inputs(model_of(name).graph_signature))
    except RuntimeFailure as failure:
        # An abort is a check of the runtime's; a crash is memory that is not the program's own.
        return f"is proved, and {failure}" if "SIGSEGV" in str(failure) or "SIGBUS" in str(failure) else ""
    wrong = differences(expected_of(name), actual, exact=False)
    return f"is proved, and {'; '.join(wrong[:3])}" if wrong else ""


def judged(name: str, pte: bytes, whole_proof: bool = True) -> str:
    """What is wrong with how a file is judged: by `prove_program`, or by the meaning that was read once."""
    report: Report | BaseException | None = None
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = monotonic()
    try:
        with alarm(MOST_SECONDS):
            if whole_proof:
                report = prove_program(model_of(name), pte)
            else:
                meaning = meaning_of(name)
                report = meaning.report(recognised(File(pte).machine("forward"), meaning.states))
    except (Exception, _TooLong) as error:
        report = error
    seconds = monotonic() - started
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    found = fault(name, pte, report, seconds, megabytes)
    return f"{name} with {changes(file_named(name), pte)} {found}" if found else ""


def changes(whole: bytes, changed: bytes) -> str:
    """How a damaged file differs, in bytes that can be looked up."""
    if len(whole) != len(changed):
        first = next((i for i, (a, b) in enumerate(zip(whole, changed, strict=False)) if a != b), len(changed))
        return f"{len(changed)} bytes, not {len(whole)}, the first other one at {first},"
    places = [i for i, (a, b) in enumerate(zip(whole, changed, strict=True)) if a != b]
    words = sorted({i & ~3 for i in places})
    return ", ".join(f"{changed[i : i + 4].hex()} for {whole[i : i + 4].hex()} at {i}" for i in words[:8])


@pytest.mark.parametrize("name", NAMES)
def test_undamaged_file_is_proved_and_runs_right(name: str) -> None:
    assert prove_program(model_of(name), file_named(name)).verdict is Verdict.PROVED
    example = example_of(name)
    mutated = mutated_inputs(model_of(name).graph_signature)
    actual = run_program(file_named(name), calls_of(example), example.imports, mutated)
    assert not differences(expected_of(name), actual, exact=False)


@pytest.mark.parametrize("name", NAMES)
def test_truncated_file_is_bad_input_at_any_length(name: str) -> None:
    whole = file_named(name)
    lengths = [len(whole) * quarter // 4 for quarter in range(4)] + [len(whole) - 1]
    for length in lengths + Random(name).sample(range(len(whole)), 20):
        with pytest.raises(BadInput):
            prove_program(model_of(name), whole[:length])


def test_name_that_an_in_place_call_returns_is_not_free() -> None:
    """`copy_` makes the slot of its result a name of the buffer, and what a later call writes there lands in it."""
    whole = file_named("swap_pair")
    file = File(whole).plans["forward"]
    calls = [i.instr_args for i in file.chains[0].instructions]
    found = []
    for call, places in zip(calls, arguments_of(whole), strict=True):
        if file.operators[call.op_index].name != "aten::copy_":
            continue
        for slot in (other.args[-1] for other in calls if other is not call):
            changed = bytearray(whole)
            changed[places[-1] : places[-1] + 4] = slot.to_bytes(4, "little")
            found.append(judged("swap_pair", bytes(changed)))
    assert not any(found), "\n".join(filter(None, found))


@given(st.sampled_from(NAMES), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_damaged_file_is_bad_input_or_judged_and_never_wrongly_proved(name: str, random: Random) -> None:
    assert not judged(name, damaged(file_named(name), random))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_campaign_of_damaged_files_finds_no_crash_no_hang_and_no_false_proof(name: str) -> None:
    found = []
    for seed in range(MUTATIONS // len(NAMES) + 1):
        # The whole of `prove_program` each tenth time only, since it reads the model anew.
        wrong = judged(name, damaged(file_named(name), Random(seed)), whole_proof=seed % 10 == 0)
        if wrong:
            found.append(f"seed {seed}: {wrong}")
        if len(found) == MOST_TOLD:
            break
    assert not found, "\n".join(found)
