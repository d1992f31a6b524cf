"""From kernel lines to facts: what the catalogue says, about this node alone, and never of yesterday."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from relight.contracts import Cause, Role, Source
from relight.diagnosis.catalogue import Catalogue
from sensor.node.facts import Fact
from sensor.node.intake import Intake
from sensor.node.kernel import KernelReader, kernel_catalogue
from sensor.node.kernel_log import Line
from sensor.node.metrics import NodeMetrics

NOW = datetime(2026, 12, 2, 10, 0, tzinfo=UTC)
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def lines(*texts: str, stamped: bool = False) -> list[Line]:
    return [Line(text.encode(), NOW, f"kmsg:boot:{n}", stamped) for n, text in enumerate(texts)]


def read(
    catalogue: Catalogue, *texts: str, proc: Path = Path("/nowhere"), stamped: bool = False
) -> list[Fact]:
    reader = KernelReader(catalogue, "node01", "/dev/kmsg", proc)
    return reader.read(lines(*texts, stamped=stamped), NOW)


def test_an_xid_is_a_fact_about_this_node(catalogue: Catalogue) -> None:
    (fact,) = read(catalogue, "usb 1-1: new device", XID_79, "eth0: link becomes ready")
    f = fact.finding
    assert (f.source, f.role, f.cause, f.hold_out) == (
        Source.KERNEL,
        Role.ROOT,
        Cause.GPU_FALLEN_OFF_BUS,
        True,
    )
    assert (f.node, f.gpu, f.text, f.rank) == ("node01", "0000:3b:00", XID_79, None)
    assert (fact.where, fact.at) == ("kmsg:boot:1", NOW)


@pytest.mark.parametrize(
    ("code", "role", "holds_out", "worth"),
    [(13, Role.ROOT, False, True), (31, Role.ROOT, False, True), (45, Role.CASCADE, False, True),
     (48, Role.ROOT, True, True), (63, Role.CONTEXT, False, False), (94, Role.ROOT, True, True),
     (999, Role.CONTEXT, False, True)],
)  # fmt: skip
def test_xids_mean_what_the_table_says(
    catalogue: Catalogue, code: int, role: Role, holds_out: bool, worth: bool
) -> None:
    (fact,) = read(catalogue, f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=7062, name=python3, Ch 00000008")
    assert (fact.finding.role, fact.finding.hold_out, fact.is_worth_telling) == (role, holds_out, worth)


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "node99: NVRM: Xid (PCI:0000:3b:00): 79, pid=1",
        "[rank7]: NVRM: Xid (PCI:0000:3b:00): 79, pid=1",
    ],
)
def test_no_text_makes_it_another_node_or_a_rank(catalogue: Catalogue, text: str) -> None:
    (fact,) = read(catalogue, text)
    assert (fact.finding.node, fact.finding.rank) == ("node01", None)


def test_bytes_that_are_no_text_do_no_harm(catalogue: Catalogue) -> None:
    odd = [Line(b"\xff\x00\x1b[31m\r" + XID_79.encode() + b"\x1b]0;x\x07", NOW, "kmsg:boot:1")]
    (fact,) = KernelReader(catalogue, "node01", "/dev/kmsg").read(odd, NOW)
    assert "\x1b" not in fact.finding.text
    assert fact.finding.signature == "kernel.xid-79"


def test_what_is_read_again_has_the_same_id(catalogue: Catalogue) -> None:
    (first,), (again,) = read(catalogue, XID_79), read(catalogue, XID_79)
    assert first.id == again.id
    one, other = read(catalogue, XID_79, XID_79)
    assert one.id != other.id


def test_a_site_has_signatures_and_xids_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        """
family: kernel_site
signatures:
  - id: kernel.site-cooling
    pattern: 'coolmon: flow lost'
    role: root
    cause: node_failure
    hold_out: true
    says: The cooling of this rack has failed.
"""
    )
    (tmp_path / "xid.yaml").write_text(
        "xid:\n  13: {name: site, does: hold_out, cause: gpu_hardware, says: 'Bad here.'}\n"
    )
    site = kernel_catalogue(Catalogue.load((tmp_path,)))
    cooling, xid = read(site, "coolmon: flow lost", "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=x")
    assert cooling.finding.signature == "kernel.site-cooling"
    assert (xid.finding.hold_out, xid.finding.cause) == (True, Cause.GPU_HARDWARE)


# ---- whose it is


def test_an_oom_kill_names_its_job(catalogue: Catalogue) -> None:
    text = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,"
        "oom_memcg=/slurm/uid_1001/job_113007,task_memcg=/slurm/uid_1001/job_113007/step_0,task=python3"
    )
    (fact,) = read(catalogue, text)
    assert (fact.job_id, fact.finding.role, fact.finding.cause) == ("113007", Role.ROOT, Cause.HOST_OOM)


@pytest.mark.parametrize(
    "text",
    [
        "Memory cgroup out of memory: Killed process 90112 (pt_data_worker) total-vm:87033376kB",
        "python[7703]: segfault at 0 ip 00007f2b4c rsp 00007ffd error 4 in libtorch_cuda.so[7f2b+1000]",
    ],
)
def test_the_end_of_a_process_that_nobody_knows_accuses_no_job(catalogue: Catalogue, text: str) -> None:
    (fact,) = read(catalogue, text)
    assert (fact.job_id, fact.finding.role) == (None, Role.CONTEXT)


@pytest.mark.parametrize(
    "group",
    [
        "0::/system.slice/slurmstepd.scope/job_4243/step_0/user/task_0\n",
        "9:memory:/slurm/uid_0/job_4243/step_batch\n1:name=systemd:/system.slice/slurmd.service\n",
    ],
)
def test_a_process_names_its_job_while_it_lives(catalogue: Catalogue, tmp_path: Path, group: str) -> None:
    (tmp_path / "7062").mkdir()
    (tmp_path / "7062" / "cgroup").write_text(group)
    text = "NVRM: Xid (PCI:0000:3b:00): 13, pid={}, name=python3, Graphics Exception"
    (mine,) = read(catalogue, text.format(7062), proc=tmp_path)
    (gone,) = read(catalogue, text.format(7063), proc=tmp_path)
    assert (mine.job_id, gone.job_id) == ("4243", None)


@pytest.mark.parametrize(
    "text",
    [  # a user's process may be called anything of 15 characters, and a user may make control groups
        "pid=4243[7703]: segfault at 0 ip 00007f2b4c rsp 00007ffd error 4 in libc.so[7f2b+1000]",
        "Memory cgroup out of memory: Killed process 90112 (pid=7062) total-vm:87033376kB",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task_memcg=/user.slice/x,task=/job_4243,pid=1,uid=7",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/user.slice/slurm/uid_1/job_4243,task=x",
        "NVRM: Xid (PCI:0000:3b:00): 13, pid=7063, name=x, pid=7062, Graphics Exception",
    ],
)
def test_no_name_that_a_user_chose_points_at_a_job(catalogue: Catalogue, tmp_path: Path, text: str) -> None:
    for pid, group in (("7062", "/slurm/uid_0/job_4243"), ("7063", "/user.slice/slurm/uid_0/job_4243")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(f"0::{group}\n")
    facts = read(catalogue, text, proc=tmp_path)
    assert facts
    assert all(fact.job_id is None for fact in facts)


# ---- old lines


@pytest.mark.parametrize(
    ("stamp", "told"),
    [
        ("2026-12-02T09:59:58+00:00 node01 kernel: ", True),
        ("2026-12-01T10:00:00+00:00 node01 kernel: ", False),
        ("2026-12-02T09:45:00Z node01 kernel: ", False),
        ("Dec 2 09:59:50 node01 kernel: ", True),
        ("Dec 1 09:59:50 node01 kernel: ", False),
        ("Dec 24 09:59:50 node01 kernel: ", False),  # of last year
        ("[830211.114201] ", True),
        ("", True),
    ],
)
def test_a_line_of_another_day_is_never_a_fact(
    catalogue: Catalogue, stamp: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert bool(read(catalogue, stamp + XID_79, stamped=True)) is told


def test_a_new_year_begins_while_it_runs(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    reader = KernelReader(catalogue, "node01", "kern.log")
    new_year = datetime(2027, 1, 1, 0, 0, 5, tzinfo=UTC)
    line = Line(f"Jan 1 00:00:03 node01 kernel: {XID_79}".encode(), new_year, "kern.log:1", stamped=True)
    assert len(reader.read([line], new_year)) == 1


def test_the_clocks_change_while_it_runs(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        summer = datetime(2026, 10, 24, 12, 0, tzinfo=UTC)
        winter = datetime(2026, 10, 25, 12, 0, tzinfo=UTC)
        reader = KernelReader(catalogue, "node01", "kern.log")
        for now, stamp in ((summer, "Oct 24 13:59:58"), (winter, "Oct 25 12:59:58")):
            line = Line(f"{stamp} node01 kernel: {XID_79}".encode(), now, "kern.log:1", stamped=True)
            assert len(reader.read([line], now)) == 1, stamp
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


# ---- storms


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def told(intake: Intake) -> list[Fact]:
    facts = []
    while (fact := intake.next(0)) is not None:
        facts.append(fact)
    return facts


def test_a_storm_tells_the_first_of_each_kind_and_little_else(catalogue: Catalogue) -> None:
    clock = Clock()
    intake = Intake(NodeMetrics(), clock)
    reader = KernelReader(catalogue, "node01", "/dev/kmsg", Path("/nowhere"))
    rare = {4321: XID_79, 7777: "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0",
            9999: "NVRM: Xid (PCI:0000:9b:00): 48, pid=1, An uncorrectable double bit error"}  # fmt: skip
    noise = "NVRM: Xid (PCI:0000:3b:00): 31, pid={}, name=python3, Ch {:08x}"
    storm = [rare.get(n, noise.format(n, n)) for n in range(10_000)]
    for start in range(0, len(storm), 2000):
        for fact in reader.read(lines(*storm[start : start + 2000]), NOW):
            intake.take(fact)
        clock.now += 0.2
    assert [f.finding.signature for f in told(intake)] == [
        "kernel.xid-31", "kernel.xid-79", "kernel.mem-ue", "kernel.xid-48",
    ]  # fmt: skip


def test_a_storm_that_goes_on_is_told_ever_more_rarely_with_its_count(catalogue: Catalogue) -> None:
    clock = Clock()
    intake = Intake(NodeMetrics(), clock)
    (fact,) = read(catalogue, XID_79)
    counts = []
    for _ in range(3600):
        intake.take(fact)
        clock.now += 1
        counts += [f.count for f in told(intake)]
    assert len(counts) < 30
    assert counts[0] == 1
    assert counts[1] >= 5
    assert max(counts) <= 182
    clock.now += 1000
    intake.take(fact)
    assert len(told(intake)) == 1  # after a quiet time it is news again


def test_context_travels_with_a_fault_or_not_at_all(catalogue: Catalogue) -> None:
    clock = Clock()
    intake = Intake(NodeMetrics(), clock)
    (harmless,) = read(catalogue, "NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper: New row marked")
    (follows,) = read(catalogue, "NVRM: Xid (PCI:0000:3b:00): 45, pid=1, Ch 00000008")
    needs, = read(catalogue, "NVRM: Xid (PCI:0000:3b:00): 154, pid=1, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")  # fmt: skip  # noqa: E501
    (root,) = read(catalogue, XID_79)
    intake.take(harmless)
    intake.take(follows)
    assert told(intake) == []
    clock.now += 60
    intake.take(root)
    intake.take(needs)
    assert [f.finding.signature for f in told(intake)] == ["kernel.xid-45", "kernel.xid-79", "kernel.xid-154"]
    clock.now += 3600
    intake.take(follows)
    assert told(intake) == []
    clock.now += 3600
    intake.take(root)
    assert [f.finding.signature for f in told(intake)] == ["kernel.xid-79"]  # that context is too old


@pytest.mark.parametrize(
    ("lost", "back", "other"),
    [
        ("nfs: server s1 not responding, still trying", "nfs: server s1 OK", "nfs: server s2 OK"),
        ("mlx5_core 0000:5e:00.0 ib0: Link down", "mlx5_core 0000:5e:00.0 ib0: Link up", "nfs: server s1 OK"),
    ],
)
def test_what_heals_is_told_only_when_it_has_not(
    catalogue: Catalogue, lost: str, back: str, other: str
) -> None:
    clock = Clock()
    intake = Intake(NodeMetrics(), clock)
    (gone,) = read(catalogue, lost)
    intake.take(gone)
    clock.now += 30
    assert told(intake) == []
    for fact in read(catalogue, back):
        intake.take(fact)
    clock.now += 600
    assert told(intake) == []
    intake.take(gone)
    for fact in read(catalogue, other):
        intake.take(fact)
    clock.now += 59
    assert told(intake) == []
    clock.now += 2
    assert [f.finding.text for f in told(intake)] == [lost]
