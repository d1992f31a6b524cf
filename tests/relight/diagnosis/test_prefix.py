"""Error codes at the start of a line are no hosts, and nodes of other jobs are not to blame."""

import pytest

from relight.contracts import Cause, Role, Symptom
from relight.diagnosis.assemble import assemble
from relight.diagnosis.catalogue import Catalogue, Kind, Signature
from relight.diagnosis.findings import Finding, Sighting
from relight.diagnosis.lint import check_examples
from relight.diagnosis.names import Names, spoken
from relight.diagnosis.prefix import speaker
from relight.diagnosis.reader import LogReader
from tests.relight.diagnosis.making import ATTEMPT, CATALOGUE, NOW

NODES = ("n1", "n2.cluster")
AFTER = r"flux capacitor depleted on rank (?P<rank>\d+)"


def site(pattern: str, code: str = "ACME-4711") -> Catalogue:
    line = f"{code}: flux capacitor depleted on rank 3"
    signature = Signature(
        id="site.flux",
        pattern=pattern,
        role=Kind.ROOT,
        cause=Cause.GPU_HARDWARE,
        hold_out=True,
        ends_rank=True,
        says="The flux capacitor is empty.",
        positive=(line, f"[rank3]: {line}"),
        negative=(f"{code}: flux capacitor charged",),
    )
    return Catalogue((signature,), CATALOGUE.xid)


def found(catalogue: Catalogue, line: str, nodes: tuple[str, ...] = ()) -> list[Finding]:
    reader = LogReader(catalogue, "a.log", nodes=nodes, tasks_per_node=2)
    return [e for e in [*reader.feed(line.encode() + b"\n"), *reader.flush()] if isinstance(e, Finding)]


@pytest.mark.parametrize("nodes", [(), NODES])
@pytest.mark.parametrize("before", ["", "[rank3]: ", "3: "])
@pytest.mark.parametrize("code", ["ACME-4711", "ACME4711", "E1203", "acme-4711"])
@pytest.mark.parametrize("with_code", ["{code}: ", ""])
def test_a_line_that_begins_with_an_error_code_is_matched_and_the_code_is_no_node(
    with_code: str, code: str, before: str, nodes: tuple[str, ...]
) -> None:
    catalogue = site(with_code.format(code=code) + AFTER, code)
    (f,) = found(catalogue, f"{before}{code}: flux capacitor depleted on rank 3", nodes)
    guessed = not nodes and not with_code and not code[1].isupper() and not code[1].isdigit()
    node = code if guessed else "n2.cluster" if nodes else None
    assert (f.signature, f.rank, f.node) == ("site.flux", 3, node)


@pytest.mark.parametrize(
    ("name", "nodes", "node"),
    [
        ("n1", NODES, "n1"),
        ("n1.cluster", NODES, "n1"),
        ("n2", NODES, "n2.cluster"),
        ("n2.cluster", NODES, "n2.cluster"),
        ("n2.elsewhere", NODES, None),
        ("n3", NODES, None),
        ("E1203", NODES, None),
        ("E1203", ("E1203",), "E1203"),
        ("n1", ("n1.a", "n1.b"), None),
        ("n3", (), "n3"),
        ("E1203", (), None),
    ],
)
@pytest.mark.parametrize("form", ["{}: text", "[{}] text"])
def test_only_the_nodes_of_the_job_are_hosts(
    form: str, name: str, nodes: tuple[str, ...], node: str | None
) -> None:
    says = speaker(form.format(name), spoken(nodes))
    assert (says.node, says.text) == (node, "text")
    assert (says.longer == "") == (node is not None and nodes != ())


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\[rank3\]: ACME-4711: ", "the text up to `[rank3]: ACME-4711:` was taken for a host name"),
        (r"^\S+ ACME-4711: ", "the text up to `[rank3]: ACME-4711:` was taken for a host name"),
        (r"ACME-4711: .* on rank 4", None),
    ],
)
def test_lint_says_that_a_prefix_was_cut_off(pattern: str, why: str | None) -> None:
    catalogue = site(pattern)
    said = [s for s in check_examples(catalogue, catalogue["site.flux"]) if "does not win" in s]
    assert said
    assert all(s.endswith(why or "(found: nothing)") for s in said[-1:])


def test_examples_that_begin_with_an_error_code_are_right() -> None:
    catalogue = site("ACME-4711: " + AFTER)
    assert list(check_examples(catalogue, catalogue["site.flux"])) == []


def sighting(node: str, rank: int | None = 3) -> Sighting:
    finding = Finding(
        signature="site.flux",
        role=Role.ROOT,
        cause=Cause.GPU_HARDWARE,
        symptom=Symptom.CRASH,
        file="a.log",
        line=1,
        offset=1,
        text="flux",
        node=node,
        rank=rank,
        ends_rank=True,
        hold_out=True,
    )
    return Sighting(finding=finding, at=NOW)


@pytest.mark.parametrize(
    ("node", "per_node", "suspects"),
    [
        ("n1", 2, [("n1", 3)]),
        ("ACME-4711", 2, [("n2.cluster", 3)]),  # where the rank runs
        ("ACME-4711", None, [(None, 3)]),
        ("n[1-9]", None, [("n1", 3), ("n2.cluster", 3)]),
        ("n[5-9]", None, [(None, 3)]),
    ],
)
def test_a_node_that_the_job_does_not_have_is_not_blamed(
    node: str, per_node: int | None, suspects: list[tuple[str | None, int]]
) -> None:
    (a,) = assemble([sighting(node)], attempt=ATTEMPT, now=NOW, nodes=NODES, tasks_per_node=per_node)
    assert [(s.node, s.rank) for s in a.suspects] == suspects


def test_a_rank_and_an_address_are_not_resolved_to_a_node_that_the_job_does_not_have() -> None:
    told = sighting("box17").finding.model_copy(update={"tag": "names", "groups": {"alias": "10.0.0.7"}})
    learned = [Sighting(finding=told, at=NOW)]
    assert (Names(learned).node("10.0.0.7"), Names(learned).of_rank(3)) == ("box17", "box17")
    names = Names(learned, NODES, 2)
    assert (names.node("10.0.0.7"), names.of_rank(3)) == (None, "n2.cluster")
