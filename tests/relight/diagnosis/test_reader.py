"""The reader: prefixes, tracebacks, cuts, long lines, carriage returns, escapes, junk."""
# ruff: noqa: E501

import itertools
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relight.contracts import Cause, Role
from relight.diagnosis.findings import Event, Finding, PhaseKind, PhaseLine, StepLine
from relight.diagnosis.reader import LogReader
from tests.relight.diagnosis.making import CATALOGUE, findings, read

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
NODES = ("n1", "n2", "n3")
SAMPLE = (
    "SLURM_JOB_NODELIST=gpu[01-02] GPUS_PER_NODE=4\n"
    " [2026-12-02 05:00:00] iteration       10/ 100000 | elapsed time per iteration (ms): 101.2 | lm loss: 1.23E+00 |\n"
    "\x1b[31m[rank3]: Traceback (most recent call last):\x1b[0m\n"
    "[rank5]: Traceback (most recent call last):\n"
    '[rank3]:   File "/home/a/train.py", line 12, in main\n'
    '[rank5]:   File "/home/a/data.py", line 7, in load\n'
    "[rank3]:     boom()\n"
    "[rank5]: ValueError: odd input 12\n"
    f"[rank3]: {ECC}\r\n"
    "\r 10%|#         | 1/9 [00:01<00:02,  1.0s/it]\r 20%|##        | 2/9 [00:01<00:02,  1.0s/it]\n"
    "saving checkpoint at iteration      10 to /ckpt in torch format\n"
    "srun: error: gpu02: task 5: Exited with exit code 1\n"
)


@pytest.mark.parametrize(
    ("prefix", "rank", "node"),
    [
        ("[rank3]: ", 3, "n2"),
        ("[rank3]:", 3, "n2"),
        ("3: ", 3, "n2"),
        ("  3: ", 3, "n2"),
        ("3: [rank3]: ", 3, "n2"),
        ("[1,5]<stderr>:", 5, "n3"),
        ("[rank: 4] ", 4, "n3"),
        ("n3: ", None, "n3"),
        ("n3: [rank4]: ", 4, "n3"),
        ("[n3] ", None, "n3"),
        ("[default1]:", None, None),
        ("[default1]:[rank3]: ", 3, "n2"),
        ("(Trainer(w-1) pid=18175, ip=10.0.0.12) ", None, None),
        ("(Trainer pid=18175) [rank0]: ", 0, "n1"),
        ("\x1b[31m[rank3]: ", 3, "n2"),
        ("", None, None),
    ],
)
def test_prefixes_say_who_speaks(prefix: str, rank: int | None, node: str | None) -> None:
    (found,) = findings(f"{prefix}{ECC}\n", nodes=NODES, per_node=2)
    assert (found.signature, found.rank, found.node) == ("gpu.ecc", rank, node)


@pytest.mark.parametrize("text", ["step2: ", "epoch1: ", "cuda0: ", "gpu-0: ", "http2: "])
def test_a_word_with_a_number_is_no_host(text: str) -> None:
    assert [f.node for f in findings(f"{text}{ECC}\n")] == [None]


def test_a_nccl_line_names_host_and_gpu() -> None:
    (found,) = findings(
        "gpu01:814:868 [2] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : port error\n"
    )
    assert (found.node, found.gpu, found.cause, found.hold_out) == ("gpu01", "2", Cause.NETWORK_FABRIC, True)


def test_the_log_itself_says_where_ranks_run() -> None:
    header = "SLURM_JOB_NODELIST=gpu[01-02] GPUS_PER_NODE=4\n"
    assert [f.node for f in findings(f"{header}[rank5]: {ECC}\n")] == ["gpu02"]
    learned = (
        "gpu07:1:2 [1] NCCL INFO ncclCommInitRank comm 0x5 rank 12 nranks 24 cudaDev 4 - Init COMPLETE\n"
    )
    assert findings(f"{learned}[rank12]: {ECC}\n")[-1].node == "gpu07"


def test_a_traceback_is_one_finding_with_a_key_that_a_replay_has_again() -> None:
    def crash(pid: int, steps: int) -> Finding:
        log = "step 1 loss 2\n" * steps + (
            "Traceback (most recent call last):\n"
            '  File "/opt/venv/lib/python3.11/site-packages/torch/nn/module.py", line 9, in __call__\n'
            '  File "/home/a/train.py", line 12, in main\n'
            "    boom()\n    ^^^^^^\n"
            '  File "/opt/venv/lib/python3.11/site-packages/torch/x.py", line 3, in y\n'
            f"MyError: worker {pid} at 0x7f{pid:x} is gone\n"
        )
        (found,) = findings(log)
        return found

    one, two = crash(41, 1), crash(977, 3)
    assert one.key == two.key
    assert "a/train.py:12" in one.key
    assert (one.role, one.cause, one.ends_rank) == (Role.ROOT, Cause.USER_CODE, True)
    assert one.line == 7


def test_interleaved_tracebacks_are_kept_apart() -> None:
    found = [
        e
        for e in read(SAMPLE)
        if isinstance(e, Finding) and e.rank is not None and e.signature != "slurm.task-exit"
    ]
    assert [(f.rank, f.node, f.signature) for f in found] == [
        (5, "gpu02", "python.any"),
        (3, "gpu01", "gpu.ecc"),
    ]
    assert "a/data.py:7" in found[0].key
    assert "a/train.py:12" in found[1].key


@given(st.lists(st.booleans(), min_size=8, max_size=8))
def test_interleaved_tracebacks_without_prefixes_lose_no_exception(order: list[bool]) -> None:
    one = [
        "Traceback (most recent call last):",
        '  File "/home/a/train.py", line 12, in main',
        "    boom()",
        "DataDamaged: sample 7 of shard 3",
    ]
    two = [
        "Traceback (most recent call last):",
        '  File "/home/a/comm.py", line 3, in receive',
        "    self.read()",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
    ]
    lines = [(one if first else two).pop(0) for first in order if (one if first else two)]
    found = findings("\n".join([*lines, *one, *two]) + "\n")
    assert {f.text.partition(":")[0] for f in found} == {"DataDamaged", "ConnectionResetError"}


def test_chained_exceptions_are_two_findings_in_order() -> None:
    log = (
        "Traceback (most recent call last):\n"
        "OSError: [Errno 28] No space left on device\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/a/b.py", line 1, in c\n'
        "RuntimeError: [enforce fail at inline_container.cc:300] . unexpected pos 64 vs 0\n"
    )
    assert [f.signature for f in findings(log)] == ["storage.full", "ckpt.write-broken"]


def test_a_traceback_that_never_ends_is_given_up() -> None:
    log = "Traceback (most recent call last):\n" + "[rank1]: something else\n" * 5000 + "MyOddName: late\n"
    assert findings(log) == []


def test_lines_offsets_and_steps() -> None:
    events = read(SAMPLE)
    lines = SAMPLE.encode().split(b"\n")
    for e in events:
        start = sum(len(line) + 1 for line in lines[: e.line])
        assert start <= e.offset <= start + len(lines[e.line])
    assert [e.step for e in events if isinstance(e, StepLine)] == [10, 1, 2]
    assert [(e.phase, e.step) for e in events if isinstance(e, PhaseLine)] == [
        (PhaseKind.CHECKPOINT_SAVE, 10)
    ]


def cut(data: bytes, cuts: list[int], **more: int) -> tuple[list[Event], LogReader]:
    reader = LogReader(CATALOGUE, "a.log", year=2026, **more)
    events: list[Event] = []
    edges = [0, *sorted({c % (len(data) + 1) for c in cuts}), len(data)]
    for a, b in itertools.pairwise(edges):
        events += reader.feed(data[a:b])
    return events + reader.flush(), reader


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 5000), max_size=30))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    whole, _ = cut(SAMPLE.encode(), [])
    pieces, reader = cut(SAMPLE.encode(), cuts)
    assert pieces == whole
    assert reader.consumed == len(SAMPLE.encode())
    assert reader.line == SAMPLE.count("\n")


_LINES = st.lists(
    st.one_of(
        st.sampled_from(SAMPLE.splitlines()),
        st.sampled_from([s for signature in CATALOGUE for s in signature.positive]),
        st.text(max_size=60),
    ),
    max_size=25,
)


@settings(max_examples=120, deadline=None)
@given(
    _LINES,
    st.lists(st.integers(0, 10_000), max_size=12),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.integers(300, 2000),
)
def test_cuts_change_nothing_in_any_mixture(
    lines: list[str], cuts: list[int], end: bytes, max_line: int
) -> None:
    data = end.join(line.encode("utf-8", "surrogatepass") for line in lines)
    assert cut(data, cuts, max_line=max_line)[0] == cut(data, [], max_line=max_line)[0]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000), st.lists(st.integers(0, 3000), max_size=6))
def test_any_bytes_in_any_pieces_are_read_without_an_exception(data: bytes, cuts: list[int]) -> None:
    assert cut(data, cuts, max_line=256)[1].consumed == len(data)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(SAMPLE.encode())))
def test_a_reader_that_resumes_where_the_last_one_stopped_loses_no_step(at: int) -> None:
    data = SAMPLE.encode()
    whole = [e for e in cut(data, [])[0] if isinstance(e, StepLine)]
    first = LogReader(CATALOGUE, "a.log", year=2026)
    events = first.feed(data[:at])
    second = LogReader(CATALOGUE, "a.log", offset=first.consumed, line=first.line, year=2026)
    events += second.feed(data[first.consumed :]) + second.flush()
    assert [e for e in events if isinstance(e, StepLine)] == whole


def test_a_line_of_megabytes_costs_only_its_beginning() -> None:
    reader = LogReader(CATALOGUE, "a.log", max_line=4096)
    reader.feed(b"warm up\n")
    tracemalloc.start()
    for _ in range(64):
        assert reader.feed(b"x" * (1 << 18)) == []
    events = reader.feed(b"\n[rank1]: " + ECC.encode() + b"\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [e.signature for e in events if isinstance(e, Finding)] == ["gpu.ecc"]
    assert peak < 4 << 20


def test_what_stands_far_behind_in_a_long_line_is_not_looked_at() -> None:
    data = b"x" * 5000 + ECC.encode() + b"\n"
    assert cut(data, [], max_line=4096)[0] == cut(data, [4500], max_line=4096)[0] == []
    assert len(cut(data, [], max_line=8192)[0]) == 1


def test_repeated_steps_of_other_ranks_are_read_once() -> None:
    line = "[rank{}]:[titan] 2026-02-24 19:46:17,508 - root - INFO - step: {:2d}  loss:  7.6  tps: 10,050\n"
    log = "".join(line.format(r, s) for s in (9, 10, 100) for r in range(50))
    steps = [e for e in read(log) if isinstance(e, StepLine)]
    assert [e.step for e in steps] == [9, 10, 100]


def test_text_in_findings_is_clean_and_bounded() -> None:
    (found,) = findings(b"\x1b[31m[rank1]: " + ECC.encode() + b" \xff\xfe" + b"A" * 5000 + b"\x1b[0m\n")
    assert len(found.text) <= 500
    assert "\x1b" not in found.text


def test_interleavings_of_many_ranks_never_raise_and_find_every_rank() -> None:
    rng = random.Random(3)
    blocks = [
        [
            f"[rank{r}]: Traceback (most recent call last):",
            f'[rank{r}]:   File "/home/a/train.py", line {r + 1}, in main',
            f"[rank{r}]: MyError: rank {r} failed",
        ]
        for r in range(100)
    ]
    order = [r for r in range(100) for _ in range(3)]
    rng.shuffle(order)
    lines = [blocks[r].pop(0) for r in order]
    found = findings("\n".join(lines) + "\n")
    assert sorted(f.rank for f in found if f.rank is not None) == list(range(100))
    assert all(f"train.py:{(f.rank or 0) + 1}" in f.key for f in found)


def test_many_threads_share_one_catalogue() -> None:
    """As the sensor's readers do: a scan needs scratch space of its own while it runs."""
    data = b"[rank0]: starting\nRuntimeError: boom\nloss is fine\n" * 200

    def read(_: int) -> int:
        return len(LogReader(CATALOGUE, "/x").feed(data))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(read, range(64)))) == 1
