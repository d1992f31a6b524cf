"""What a report says: its numbers, and the runs, nodes and remarks beside them."""

from relight.contracts import Model, UtcDatetime
from relight.contracts.guard import NodeView
from relight.report.figures import Figures
from relight.report.records import Chain


class Report(Model):
    """All that is on the page."""

    cluster: str = ""
    """Empty: of several clusters, or nothing is known of any."""
    made: UtcDatetime
    figures: Figures
    chains: tuple[Chain, ...] = ()
    """Those with the most recoveries first."""
    nodes: tuple[NodeView, ...] | None = None
    """The guard's ledger, the worst first; None: the guard could not be asked."""
    from_archive: int = 0
    """Recoveries that only the archive knows any more."""
    remarks: tuple[str, ...] = ()
    """What could not be read, and why."""
