"""Asks Prometheus. Slow, wrong or not there at all, it makes its evidence unknown and nothing else."""

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta

import structlog
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import RequestException
from urllib3.util import Retry

from relight.config import TOKEN_VARIABLE, PrometheusSettings
from relight.prometheus.queries import DEFAULTS, fill
from relight.prometheus.reading import Reading, Value, host, read_vector

log = structlog.get_logger("prometheus")

MAX_MATCH = 800
"""Characters of a matcher that names nodes; beyond it all nodes are asked for, and the rest is left out.

The client sends the query in the address, and some queries hold the matcher six times: proxies in front of
a Prometheus refuse addresses beyond 8 KB (nginx, `large_client_header_buffers`).
"""
PATIENCE = 2
"""Timeouts that one answer may take in all: the client's own timeout is about each read of it."""


class Machines:
    """What Prometheus knows of nodes and their GPUs.

    Args:
        settings: where it is, and how to ask it.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._queries = {**DEFAULTS, **settings.queries}
        token = os.environ.get(TOKEN_VARIABLE, "")
        self._connection = PrometheusConnect(
            url=settings.url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"} if token else None,
            retry=Retry(total=0),
            timeout=settings.timeout.total_seconds(),
        )

    @classmethod
    def of(cls, settings: PrometheusSettings) -> "Machines | None":
        """None where no Prometheus is configured."""
        return cls(settings) if settings.url else None

    async def read(
        self,
        names: Sequence[str],
        nodes: Iterable[str] | None,
        *,
        window: timedelta,
        before: timedelta = timedelta(minutes=30),
        ago: timedelta | None = None,
    ) -> Reading:
        """Asks these queries, one request each whatever the number of nodes. Never raises for a Prometheus.

        Args:
            names: names of queries.
            nodes: the scheduler's names of the nodes; None: all that Prometheus knows.
            window: the time that is judged, up to now.
            before: how long the time was that tells what is normal.
            ago: when that time ended; not given: when the window began.
        """
        wanted = None if nodes is None else {host(node): node for node in nodes}
        match = self._match(wanted or ())
        reading = Reading()
        for name in names:
            try:
                query = fill(
                    self._queries[name],
                    window=window.total_seconds(),
                    before=before.total_seconds(),
                    ago=None if ago is None else ago.total_seconds(),
                    match=match,
                    labels=self._settings.node_labels,
                )
                reading.texts[name] = query
                async with asyncio.timeout(PATIENCE * self._settings.timeout.total_seconds()):
                    answer = await asyncio.to_thread(self._ask, query)
            except (RequestException, TimeoutError) as error:
                reading.problem = reading.problem or f"{name}: {_short(error)}"
                break  # it does not answer: nor would it the other queries
            except (PrometheusApiClientException, ValueError, KeyError, TypeError) as error:
                reading.problem = reading.problem or f"{name}: {_short(error)}"
                continue
            reading.answers[name] = tuple(
                Value(v.node, v.gpu, v.value, query)
                for v in read_vector(answer, self._settings.node_labels, wanted)
            )
        return reading

    def _ask(self, query: str) -> list[object]:
        answer = self._connection.custom_query(query)
        if not isinstance(answer, list):
            raise ValueError("the answer is no vector")
        return answer

    def _match(self, nodes: Iterable[str]) -> str:
        """`{Hostname=~"(node1|node2)([.:].*)?"}`, where the site says which label names the node."""
        listed = "|".join(re.escape(node).replace("\\", "\\\\") for node in sorted(nodes))
        if not self._settings.match_label or not listed or len(listed) > MAX_MATCH:
            return ""
        return f'{{{self._settings.match_label}=~"({listed})([.:].*)?"}}'


def _short(error: Exception) -> str:
    text = re.sub(r"\s+", " ", str(error)) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."
