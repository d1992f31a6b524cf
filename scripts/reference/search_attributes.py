"""`docs/reference/search-attributes.md`."""

from typing import Any

from temporalio.common import SearchAttributeKey

from relight.contracts import ids
from relight.docstrings import below
from scripts.reference.markdown import code, head, prose, table

INTRO = """\
By these Temporal finds relight's workflows: in the web UI's search field, in its saved queries, and with
`temporal workflow list --query`. `relight setup` registers them.
"""
RECOVERY = 'WorkflowType = "RecoveryWorkflow" AND ExecutionStatus = '
MONITOR = 'WorkflowType = "TrainingJobMonitor" AND ExecutionStatus = '
QUERIES = {
    "plans that wait for a person": 'RelightState = "awaiting-approval"',
    "recoveries that wait for the guard": 'RelightState = "awaiting-permit"',
    "everything of a job": 'RelightJobId = "4243"',
    "recoveries that did not resume": f'{RECOVERY}"Completed" AND RelightState != "resumed"',
    "jobs that may act alone": f'{MONITOR}"Running" AND RelightMode = "act"',
    "clusters with an open breaker, or paused": 'WorkflowType = "ClusterGuard" AND RelightState != "closed"',
    "stuck workflows (tell us)": "TemporalReportedProblems IS NOT NULL",
}
"""What is found, and the query."""


def page() -> str:
    """The text of the page."""
    texts = below(ids)
    constants = {key.name: name for name, key in vars(ids).items() if key in ids.SEARCH_ATTRIBUTES}
    rows = [(f"`{key.name}`", _type(key), prose(texts[constants[key.name]])) for key in ids.SEARCH_ATTRIBUTES]
    parts = [
        head("Search attributes", INTRO, "relight/contracts/ids.py"),
        table(("name", "type", "meaning"), rows),
        "## Useful queries\n",
        table(("what is found", "query"), ((what, code(query)) for what, query in QUERIES.items())),
    ]
    return "\n".join(parts)


def _type(key: SearchAttributeKey[Any]) -> str:
    return key.indexed_value_type.name.title().replace("_", "")
