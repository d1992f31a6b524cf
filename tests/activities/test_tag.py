import json
from datetime import UTC, datetime

import pytest

from activities.tag import MAX_COMMENT, read_tag, tagged
from relight.policy.holds import Tag

ID = "recover:lab:42:0:abcd"


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("", f"relight-recovery={ID}"),
        ("my run", f"my run relight-recovery={ID}"),
        ("my run relight-recovery=old", f"my run relight-recovery={ID}"),
        ('my relight-recovery=old relight-held="why so" run', f"my run relight-recovery={ID}"),
        ("{not json", f"{{not json relight-recovery={ID}"),
        ("[1, 2]", f"[1, 2] relight-recovery={ID}"),
    ],
)
def test_plain_text_keeps_what_the_user_wrote(comment: str, expected: str) -> None:
    assert tagged(comment, ID) == expected
    assert tagged(tagged(comment, ID), ID) == expected


def test_the_reason_for_a_hold_is_quoted() -> None:
    assert tagged("x", ID, 'no "good"\ncheckpoint').endswith("relight-held=\"no 'good' checkpoint\"")


def test_json_stays_json_and_keeps_its_keys() -> None:
    comment = '{"relight": {"mode": "act", "recovery": "old", "held": "old"}, "team": "größe", "n": 1.5}'
    assert json.loads(tagged(comment, ID)) == {
        "relight": {"mode": "act", "recovery": ID},
        "team": "größe",
        "n": 1.5,
    }
    assert json.loads(tagged(comment, ID, "why"))["relight"]["held"] == "why"


def test_a_mark_does_not_ask_for_relight_in_the_users_name() -> None:
    marked = json.loads(tagged('{"team": "x"}', ID, "why"))
    assert marked == {"team": "x", "relight-recovery": ID, "relight-held": "why"}
    assert tagged(json.dumps(marked), ID, "why") == json.dumps(marked)


def test_deep_json_is_text() -> None:
    comment = '{"a":' * 100_000
    assert tagged(comment, ID).startswith(comment[:900])


@pytest.mark.parametrize(
    "comment", ["x" * 1000, "ü" * 900, json.dumps({"relight": {"run": "y" * 990}}), "z" * 5000]
)
def test_a_comment_stays_one_that_slurm_takes(comment: str) -> None:
    text = tagged(comment, ID, "why it is held")
    assert len(text.encode()) <= MAX_COMMENT
    assert ID in text
    assert tagged(text, ID, "why it is held") == text


def test_the_reason_gives_way_before_the_users_text_does() -> None:
    comment = "x" * (MAX_COMMENT - len(f" relight-recovery={ID}"))
    assert tagged(comment, ID, "why it is held") == f"{comment} relight-recovery={ID}"


# ---- why, until when, and for whom a job is held ---------------------------------------------------------

UNTIL = datetime(2026, 12, 2, 16, 30, tzinfo=UTC)
COMMENTS = ["", "my run", '{"team": "x"}', '{"relight": {"run": "r"}}', "[1]", 'a relight-held="x y" b']


@pytest.mark.parametrize("comment", COMMENTS)
@pytest.mark.parametrize("person", [False, True])
def test_a_mark_can_be_read_back(comment: str, person: bool) -> None:
    text = tagged(comment, ID, 'no "good" checkpoint', UNTIL, person=person)
    tag = read_tag(text)
    assert tag is not None
    assert (tag.recovery_id, tag.until, tag.person) == (ID, UNTIL, person)
    assert tag.held.replace("'", '"') == 'no "good" checkpoint'
    released = read_tag(tagged(text, ID))
    assert released == Tag(recovery_id=ID)
    assert tagged(text, ID) == tagged(comment, ID)


@pytest.mark.parametrize(
    "comment",
    ["", "my run", "{}", '{"relight": {"run": "r"}}', '{"relight": true}', "relight-held=x", "{" * 2000,
     'relight-recovery=r relight-held-until=soon', '{"relight-recovery": 3}',
     '{"relight": {"recovery": "r", "held_until": [1]}}'],
)  # fmt: skip
def test_what_is_no_mark(comment: str) -> None:
    assert read_tag(comment) is None


def test_the_reason_gives_way_before_the_deadline_does() -> None:
    mark = f" relight-recovery={ID} relight-held-until=2026-12-02T16:30:00Z"
    text = tagged("x" * (MAX_COMMENT - len(mark)), ID, "why it is held", UNTIL)
    assert text.endswith(mark)
    tag = read_tag(text)
    assert tag is not None
    assert tag.until == UNTIL
