"""`docs/reference/catalogue.md`: the signatures, the codes of GPUs and switches, and the causes."""

from itertools import groupby

from pydantic.fields import FieldInfo

from relight.contracts import Cause, Symptom
from relight.contracts import cause as cause_module
from relight.diagnosis.catalogue import Catalogue, Kind, Names, Signature
from relight.diagnosis.steplines import FORMATS
from relight.diagnosis.xid import XidClass, XidEntry
from relight.docstrings import below
from scripts.reference.markdown import code, head, prose, table
from scripts.reference.settings import default_text
from scripts.reference.types import words

INTRO = """\
How relight reads logs: [diagnosis.md](../diagnosis.md). `relight catalogue list` prints the signatures that
are in force, those of the site included. How to add one:
[how-to/add-a-signature.md](../how-to/add-a-signature.md).
"""
_EXAMPLE = 160


def page() -> str:
    """The text of the page."""
    known = Catalogue.load()
    parts = [
        head("The catalogue", INTRO, "relight/diagnosis/signatures/ and relight/contracts/cause.py"),
        "## Symptoms\n",
        table(("symptom", "meaning"), _members(Symptom)),
        "## Causes\n",
        table(("cause", "meaning"), _members(Cause)),
        "## Roles\n",
        "What a line means for the others: a *root* explains others, a *cascade* follows from something, "
        "*context* tells only when there is nothing else, *benign* lines look bad and are not.\n",
        "## Fields of a signature\n",
        "What an entry under `signatures:` of a family file may have. Only the first three must be there, "
        "and for `relight catalogue lint` the examples.\n",
        table(("field", "value", "default", "meaning"), _fields()),
        "Named groups of the pattern have a meaning: `rank`, `node` (or a name that begins so), `gpu`, "
        "`peer` (the far end of a network message), `code` (Xid), `key` (what a replay of the same failure "
        "prints again).\n",
        "`names` is one of:\n",
        table(("value", "meaning"), _members(Names)),
        "## Signatures\n",
        f"{len(known)} of them, in {len({s.family for s in known})} families.\n",
    ]
    titles = ("id", "role", "symptom", "cause", "says", "example")
    for family, signatures in groupby(known, key=lambda s: s.family):
        parts += [f"### {family}\n", table(titles, map(_row, signatures))]
    parts += [
        "## Xid and SXid\n",
        "NVIDIA's codes in kernel logs: of GPUs, and of NVSwitches. Any other code is for a person.\n",
        table(("does", "meaning"), _members(XidClass)),
        "### Xid\n",
        table(("code", "name", "does", "cause", "needs", "says"), _codes(known.xid.xid)),
        "### SXid\n",
        table(("code", "name", "does", "cause", "needs", "says"), _codes(known.xid.sxid)),
        "## Step lines\n",
        "Formats that are recognised without being taught, in the order in which they are tried:\n",
        ", ".join(f"`{form.name}`" for form in FORMATS) + ".\n",
    ]
    return "\n".join(parts)


_NOT_WRITTEN = {"family", "where"}
"""Fields that the loader fills in."""


def _fields() -> list[tuple[str, ...]]:
    texts = below(Signature)
    return [
        (code(name), _value(field), code(default_text(field)), prose(texts[name]))
        for name, field in Signature.model_fields.items()
        if name not in _NOT_WRITTEN
    ]


def _value(field: FieldInfo) -> str:
    if field.annotation is Cause:
        return "one of the [causes](#causes)"
    return words(field.annotation)


def _row(s: Signature) -> tuple[str, ...]:
    tells = s.role is not Kind.BENIGN
    example = s.positive[0] if s.positive else ""
    shown = example if len(example) <= _EXAMPLE else example[: _EXAMPLE - 3] + "..."
    cause = f"{s.cause.value}" if tells else ""
    return (
        code(s.id),
        s.role.value,
        s.symptom.value if tells else "",
        cause,
        prose(s.says) + (" Whom it accuses: the far end." if s.names is Names.FAR else ""),
        code(shown),
    )


def _members(kind: type[Symptom | Cause | XidClass | Names]) -> list[tuple[str, str]]:
    texts = below(kind)
    return [(code(member.value), prose(texts.get(member.name, ""))) for member in kind]


def _codes(entries: dict[int, XidEntry]) -> list[tuple[str, ...]]:
    return [
        (str(number), code(e.name), e.does.value, e.cause.value, e.needs.value, prose(e.says))
        for number, e in sorted(entries.items())
    ]


assert cause_module.Cause is Cause
