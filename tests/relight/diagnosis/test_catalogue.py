"""The signatures, each against its own examples; bad entries, site overrides, and the Xid table."""

import re
from pathlib import Path

import pytest

from relight.contracts import Cause, Role
from relight.diagnosis import phases, steplines
from relight.diagnosis.catalogue import Catalogue, Kind, Signature
from relight.diagnosis.engine import compile_patterns
from relight.diagnosis.lint import adversarial, check_examples, check_speed, check_style
from relight.diagnosis.xid import UNKNOWN_CODE, XidClass
from tests.relight.diagnosis.making import CATALOGUE, findings


def test_there_are_enough_signatures_and_nothing_is_left_out() -> None:
    assert CATALOGUE.problems == ()
    assert len(CATALOGUE) >= 120


def test_the_engine_takes_every_pattern() -> None:
    compile_patterns(
        [
            *(s.pattern for s in CATALOGUE),
            *(t for f in steplines.FORMATS for t in f.triggers),
            *phases.TRIGGERS,
        ]
    )


@pytest.mark.parametrize("signature", list(CATALOGUE), ids=lambda s: s.id)
def test_examples(signature: Signature) -> None:
    assert [*check_examples(CATALOGUE, signature), *check_style(signature)] == []


@pytest.mark.parametrize("family", sorted({s.family for s in CATALOGUE}))
def test_no_pattern_is_catastrophic_on_adversarial_lines(family: str) -> None:
    slow = {
        s.id: faults
        for s in CATALOGUE
        if s.family == family and (faults := list(check_speed(s, adversarial(s))))
    }
    assert slow == {}


def test_a_slow_pattern_would_be_noticed() -> None:
    slow = Signature(id="x.slow", pattern=r"(a+)+$|never", role=Kind.ROOT, positive=("aaa",))
    assert list(check_speed(slow, ["a" * 24 + "b"]))


GOOD = """
family: site
signatures:
  - id: site.fan
    pattern: 'fan (?P<key>\\d+) stopped'
    role: root
    cause: node_failure
    says: A fan stopped.
    positive: ["fan 1 stopped", "fan 2 stopped"]
    negative: ["fan 1 runs"]
"""


def load(tmp_path: Path, text: str, name: str = "site.yaml") -> Catalogue:
    (tmp_path / name).write_text(text)
    return Catalogue.load([tmp_path])


def test_a_site_adds_signatures(tmp_path: Path) -> None:
    catalogue = load(tmp_path, GOOD)
    assert catalogue.problems == ()
    assert len(catalogue) == len(CATALOGUE) + 1
    assert list(check_examples(catalogue, catalogue["site.fan"])) == []


def test_a_site_overrides_by_id(tmp_path: Path) -> None:
    catalogue = load(tmp_path, GOOD.replace("site.fan", "gpu.oom").replace("node_failure", "unknown"))
    assert len(catalogue) == len(CATALOGUE)
    assert catalogue["gpu.oom"].cause is Cause.UNKNOWN


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        ((r"'fan (?P<key>\d+) stopped'", "'fan ('"), 5, "does not compile"),
        ((r"'fan (?P<key>\d+) stopped'", "'fan(?=x)'"), 4, "engine"),
        (("role: root", "role: chief"), 6, "role"),
        (("cause: node_failure", "cause: gremlins"), 7, "cause"),
        (("    says:", "    sais:"), 8, "Extra inputs"),
        (("id: site.fan", "id: 'Site Fan'"), 4, "id"),
    ],
)
def test_a_bad_entry_is_named_and_left_out(
    tmp_path: Path, change: tuple[str, str], line: int, message: str
) -> None:
    text = GOOD.replace(*change) + GOOD.split("signatures:")[1].replace("site.fan", "site.second")
    catalogue = load(tmp_path, text)
    (problem,) = catalogue.problems
    assert str(problem).startswith(f"{tmp_path / 'site.yaml'}:{line}:")
    assert message in problem.message
    assert catalogue.get("site.second") is not None
    assert catalogue.get("site.fan") is None


@pytest.mark.parametrize("text", ["", "[1, 2]", "family: x", "a: [", "family: x\nsignatures: 3", "\x00"])
def test_a_file_that_is_no_family_is_named(tmp_path: Path, text: str) -> None:
    catalogue = load(tmp_path, text)
    assert [p.file.name for p in catalogue.problems] == ["site.yaml"]
    assert len(catalogue) == len(CATALOGUE)


def test_a_missing_site_directory_is_named(tmp_path: Path) -> None:
    catalogue = Catalogue.load([tmp_path / "nowhere"])
    assert "no such directory" in str(catalogue.problems[0])


def test_an_id_twice_in_one_file_is_named(tmp_path: Path) -> None:
    catalogue = load(tmp_path, GOOD + GOOD.split("signatures:")[1])
    assert "twice" in catalogue.problems[0].message


# Xid codes: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html


def xid_line(code: int) -> str:
    return f"[1.0] NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, name=python, something\n"


@pytest.mark.parametrize("code", sorted(CATALOGUE.xid.xid))
def test_every_xid_code_is_judged_by_the_table(code: int) -> None:
    entry = CATALOGUE.xid.entry(code)
    (found,) = findings(xid_line(code))
    assert found.gpu == "0000:3b:00"
    if code == 154:
        assert found.role is Role.CASCADE
        return
    assert found.signature == f"kernel.xid-{code}"
    assert found.cause is entry.cause
    assert found.hold_out is (entry.does is XidClass.HOLD_OUT)
    roles = {XidClass.FOLLOWS: Role.CASCADE, XidClass.IGNORE: Role.CONTEXT, XidClass.ESCALATE: Role.CONTEXT}
    assert found.role is roles.get(entry.does, Role.ROOT)


@pytest.mark.parametrize(
    ("code", "does"),
    [
        (13, XidClass.RESTART),
        (31, XidClass.RESTART),
        (43, XidClass.FOLLOWS),
        (45, XidClass.FOLLOWS),
        (48, XidClass.HOLD_OUT),
        (63, XidClass.IGNORE),
        (64, XidClass.HOLD_OUT),
        (74, XidClass.HOLD_OUT),
        (79, XidClass.HOLD_OUT),
        (94, XidClass.HOLD_OUT),
        (95, XidClass.HOLD_OUT),
        (119, XidClass.HOLD_OUT),
        (140, XidClass.HOLD_OUT),
        (143, XidClass.HOLD_OUT),
        (145, XidClass.ESCALATE),
        (149, XidClass.HOLD_OUT),
    ],
)
def test_the_codes_that_matter_most(code: int, does: XidClass) -> None:
    assert CATALOGUE.xid.entry(code).does is does


def test_an_unknown_code_is_for_a_person() -> None:
    assert CATALOGUE.xid.entry(999) is UNKNOWN_CODE
    (found,) = findings(xid_line(999))
    assert (found.role, found.hold_out) == (Role.CONTEXT, False)


def test_a_site_overrides_a_code(tmp_path: Path) -> None:
    catalogue = load(tmp_path, "xid:\n  94: {does: restart, cause: gpu_memory_ecc}\n", "xid.yaml")
    assert catalogue.problems == ()
    assert catalogue.xid.entry(94).does is XidClass.RESTART
    assert catalogue.xid.entry(95) == CATALOGUE.xid.entry(95)


def test_a_broken_site_table_is_named(tmp_path: Path) -> None:
    catalogue = load(tmp_path, "xid:\n  94: {does: explode}\n", "xid.yaml")
    assert "Xid table" in catalogue.problems[0].message
    assert catalogue.xid.entry(94) == CATALOGUE.xid.entry(94)


def test_no_place_of_a_cluster_is_in_the_data() -> None:
    """Patterns must not know host names, job ids or addresses of any log they were written from."""
    for s in CATALOGUE:
        assert not re.search(r"node0\d|48213|10\\?\.0\\?\.0", s.pattern), s.id
