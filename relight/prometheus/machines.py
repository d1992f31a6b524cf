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

from relight.config import PrometheusSettings
from relight.prometheus.queries import DEFAULTS, fill
from relight.prometheus.reading import Reading, Value, host, read_vector

log = structlog.get_logger("prometheus")

MAX_MATCH = 20_000
"""Characters of a matcher that names nodes; beyond it all nodes are asked for, and the rest is left out."""
TOKEN_VARIABLE = "RELIGHT_PROMETHEUS_TOKEN"
"""Environment variable with a bearer token. Not a setting: it would show in `relight config`."""


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
            method="POST",  # a query about many nodes is long
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
    ) -> Reading:
        """Asks these queries, one request each whatever the number of nodes. Never raises for a Prometheus.

        Args:
            names: names of queries.
            nodes: the scheduler's names of the nodes; None: all that Prometheus knows.
            window: the time that is judged.
            before: the time before that, for what is normal.
        """
        wanted = None if nodes is None else {host(node): node for node in nodes}
        match = self._match(wanted or ())
        reading = Reading()
        for name in names:
            query = fill(
                self._queries[name], window=window.total_seconds(), before=before.total_seconds(), match=match
            )
            reading.texts[name] = query
            try:
                answer = await asyncio.to_thread(self._ask, query)
            except (RequestException, PrometheusApiClientException, ValueError, KeyError) as error:
                reading.problem = reading.problem or f"{name}: {_short(error)}"
                if isinstance(error, RequestException):
                    break  # it does not answer: nor would it the other queries
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
