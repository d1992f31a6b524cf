"""One pass over the bytes of a log with all patterns at once (Hyperscan); exact groups only on hit lines.

Hyperscan reports where patterns end. Lines without a report are never looked at in Python. A reported line
is then examined with `re`, on the text without prefixes and terminal escapes.
"""

import re
import threading
from dataclasses import dataclass
from functools import lru_cache

import hyperscan

from relight.diagnosis import phases, steplines
from relight.diagnosis.catalogue import Catalogue, Kind, Signature
from relight.diagnosis.engine import compile_patterns

STEP = -1
"""The line may be a step line."""
STEP_WORD = -6
"""As `STEP`, and the match ends right before the number."""
PHASE = -2
TRACE = -3
"""The line may begin a Python traceback."""
NOTE = -4
"""The line may say who is who: nodes, ranks, addresses, a new attempt."""
COLOUR = -5
"""The line has terminal escapes: patterns may be interrupted by them."""

NOTES: tuple[str, ...] = (
    r"SLURM_(?:JOB_|STEP_)?NODELIST=",
    r"NCCL INFO Bootstrap : Using",
    r"ncclCommInitRank comm .{0,40} rank \d+ nranks",
    r"SLURM_RESTART_COUNT=",
    r"^Restart \d+ of job",
    r"^\s*attempt \d+(?: hosts \S+)?: ",
)


@dataclass(frozen=True)
class Match:
    """A signature and its groups."""

    signature: Signature
    groups: dict[str, str]
    whole: bool = False
    """It matches the longer text only."""


class Matcher:
    """All patterns of a catalogue, compiled once."""

    def __init__(
        self, catalogue: Catalogue, steps: tuple[steplines.StepFormat, ...] = steplines.FORMATS
    ) -> None:
        """Compiles the database.

        Raises:
            ValueError: a pattern is not supported; a loaded catalogue has none such.
        """
        self.steps = steps
        self.signatures = tuple(catalogue)
        self._patterns = [re.compile(s.pattern) for s in self.signatures]
        # Better signatures first: heavier, then benign before others, then catalogue order.
        self._order = {n: (-s.weight, s.role is not Kind.BENIGN, n) for n, s in enumerate(self.signatures)}
        self.dull = frozenset(n for n, s in enumerate(self.signatures) if s.role is Kind.BENIGN)
        """Numbers that say nothing when no other is with them."""
        triggers = [alternative for f in steps for alternative in f.triggers]
        triggers += [trigger for _, trigger, _, _ in steplines.DETAILS]
        extra: list[tuple[int, str]] = [
            (STEP_WORD if t == steplines.STEP_WORD else STEP, t) for t in dict.fromkeys(triggers)
        ]
        extra += [(PHASE, t) for t in phases.TRIGGERS]
        extra += [(TRACE, r"Traceback \(most recent call last\)"), (COLOUR, r"\x1b\[")]
        extra += [(NOTE, n) for n in NOTES]
        self._meaning = [*range(len(self.signatures)), *(kind for kind, _ in extra)]
        self._db = compile_patterns([*(s.pattern for s in self.signatures), *(p for _, p in extra)])
        self._local = threading.local()

    def scan(self, block: bytes) -> list[tuple[int, int]]:
        """Where patterns end, as (offset after the match, meaning), in order of offset.

        A meaning is the number of a signature, or one of the negative constants.
        """
        hits: list[tuple[int, int]] = []
        meaning = self._meaning
        append = hits.append

        def hit(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            append((end, meaning[number]))

        # Readers of many jobs share this matcher, each in a thread of a pool; Hyperscan needs scratch space
        # for each scan that runs at the same time.
        scratch = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = hyperscan.Scratch(self._db)
        self._db.scan(block, match_event_handler=hit, scratch=scratch)
        return hits

    def match(self, text: str, numbers: set[int], longer: str = "") -> Match | None:
        """The best of these signatures that really matches the text; None for none, or for a benign line.

        `longer` is the text with what may be a prefix or be said: a signature may match that instead.
        """
        for n in sorted(numbers, key=self._order.__getitem__):
            m = self._patterns[n].search(text)
            whole = m is None and longer != ""
            if whole:
                m = self._patterns[n].search(longer)
            if m is None:
                continue
            if self.signatures[n].role is Kind.BENIGN:
                return None
            groups = {k: v for k, v in m.groupdict().items() if v is not None}
            return Match(self.signatures[n], groups, whole)
        return None


_compiling = threading.Lock()


def matcher_for(catalogue: Catalogue, steps: tuple[steplines.StepFormat, ...] | None = None) -> Matcher:
    """The matcher of a catalogue, compiled once in this process."""
    # A cache alone lets threads that miss it at the same time compile one each: a sensor that starts with
    # many jobs would spend a second or two of CPU, and tens of megabytes, in each of its readers.
    with _compiling:
        return _compiled(catalogue, steps)


@lru_cache(maxsize=16)
def _compiled(catalogue: Catalogue, steps: tuple[steplines.StepFormat, ...] | None) -> Matcher:
    return Matcher(catalogue, steps or steplines.FORMATS)
