"""The matcher of a catalogue is compiled once, however many readers ask for it at the same time."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from relight.diagnosis import matcher
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.steplines import with_custom


def test_readers_that_start_together_share_one_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(matcher.Matcher):
        def __init__(self, *args: object) -> None:
            made.append(args)
            super().__init__(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(matcher, "Matcher", Counted)
    catalogue = Catalogue.load()
    steps = with_custom((r"only here (?P<step>\d+)",))  # nothing else in this process has compiled these
    with ThreadPoolExecutor(8) as readers:
        found = list(readers.map(lambda _: matcher.matcher_for(catalogue, steps), range(8)))
    assert len(made) == 1
    assert all(one is found[0] for one in found)
