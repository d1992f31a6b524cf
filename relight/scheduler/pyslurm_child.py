"""The program that speaks with Slurm through pyslurm, for `pyslurm_process`: run as `python -m`.

pyslurm lives in a process of its own because it never releases Python's global lock during a call (25.11.2
has no `nogil` block): one call that hangs would stop every thread, and the event loop, of its process.
And without a configuration that can be reached, `import pyslurm` ends the process (libslurm's `fatal`).

One request a line on standard input, one answer a line on standard output, both JSON. Standard output belongs
to the answers: whatever libslurm prints goes to standard error.

The names and types of pyslurm used here: 25.11.2, `pyslurm/core/job/job.pyx`, `core/node.pyx`,
`core/job/submission.pyx`, `core/slurmctld/config.pyx`, `core/error.pyx`.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import hostlist

from relight.scheduler.pyslurm_errors import name_of

JOB_ATTRIBUTES = (
    "id", "array_id", "array_task_id", "array_tasks_waiting", "heterogeneous_id", "heterogeneous_offset",
    "name", "user_name", "partition", "state", "state_reason", "requeue_count", "submit_time", "start_time",
    "end_time", "eligible_time", "time_limit", "allocated_nodes", "excluded_nodes", "num_nodes", "ntasks",
    "ntasks_per_node", "priority", "is_requeueable", "is_batch_job", "exit_code", "exit_code_signal",
    "standard_output", "standard_error", "working_directory", "comment",
)  # fmt: skip
"""Attributes of `pyslurm.Job` that are sent as they are: numbers, texts, None."""

NODE_ATTRIBUTES = ("name", "state", "reason", "reason_user")
"""Likewise of `pyslurm.Node`."""

_TRES = "allocated_tres"

Record = dict[str, Any]


class Slurm:
    """The requests, each a method; the arguments are those of the request."""

    def __init__(self, pyslurm: Any) -> None:
        """Asks nothing.

        Args:
            pyslurm: the module.
        """
        self._pyslurm = pyslurm

    def version(self) -> Record:
        """Versions of both, the cluster's name, and what this pyslurm lacks of what relight reads."""
        config = self._pyslurm.slurmctld.Config.load()
        job, node = self._pyslurm.Job, self._pyslurm.Node
        lacks = [f"Job.{name}" for name in (*JOB_ATTRIBUTES, _TRES) if not hasattr(job, name)]
        lacks += [f"Node.{name}" for name in NODE_ATTRIBUTES if not hasattr(node, name)]
        return {
            "lacks": lacks,
            "pyslurm": self._pyslurm.__version__,
            "slurm": config.version,
            "cluster": config.cluster_name,
        }

    def jobs(
        self, ids: list[str] | None = None, node: str | None = None, text: str | None = None
    ) -> list[Record]:
        """Jobs with one of these ids, on this node, with this text in the comment; one RPC reads all jobs."""
        wanted = None if ids is None else {part for job_id in ids for part in (job_id, job_id.split("_")[0])}
        found = []
        for job in self._pyslurm.Jobs.load().values():
            if wanted is not None and not wanted & set(_ids(job)):
                continue
            if node is not None and node not in hostlist.expand_hostlist(job.allocated_nodes or ""):
                continue
            if text is not None and text not in (_read(job, "comment") or ""):
                continue
            found.append(_job(job))
        return found

    def nodes(self, names: list[str]) -> list[Record]:
        """These nodes; none named: all."""
        loaded = self._pyslurm.Nodes.load().values()
        wanted = set(names)
        return [
            {attribute: _read(node, attribute) for attribute in NODE_ATTRIBUTES}
            for node in loaded
            if not wanted or node.name in wanted
        ]

    def batch_script(self, job_id: int) -> str:
        """The script of a job."""
        return str(self._pyslurm.Job(job_id).get_batch_script())

    def requeue_hold(self, job_id: int) -> None:
        """Back to the queue, held."""
        self._pyslurm.Job(job_id).requeue(hold=True)

    def modify(self, job_id: int, changes: dict[str, Any]) -> None:
        """Changes a job. pyslurm takes an empty text or list for "no change"."""
        self._pyslurm.Job(job_id).modify(self._pyslurm.JobSubmitDescription(**changes))

    def hold(self, job_id: int) -> None:
        """Holds a job as `scontrol hold` does."""
        self._pyslurm.Job(job_id).hold()

    def release(self, job_id: int) -> None:
        """Releases it."""
        self._pyslurm.Job(job_id).release()

    def cancel(self, job_id: int) -> None:
        """Cancels it."""
        self._pyslurm.Job(job_id).cancel()

    def set_node(self, node: str, state: str, reason: str | None = None) -> None:
        """Drains (with a reason) or resumes a node."""
        changes = {"state": state} if reason is None else {"state": state, "reason": reason}
        self._pyslurm.Node(node).modify(self._pyslurm.Node(**changes))


def answer(slurm: Slurm, pyslurm: Any, request: Record) -> Record:
    """The answer to one request; what fails in Slurm is an answer too."""
    act: Callable[..., Any] = getattr(slurm, request["ask"])
    try:
        return {"answer": act(**request["with"])}
    except pyslurm.RPCError as e:
        number = int(e.errno)
        return {
            "error": {
                "number": number,
                "name": name_of(number, lambda name: getattr(pyslurm, name, None)),
                "said": str(e),
            }
        }
    except UnicodeDecodeError as e:
        return {
            "error": {"number": 0, "name": "ESLURM_NOT_SUPPORTED", "said": f"it is not UTF-8: {e.reason}"}
        }
    except (
        hostlist.BadHostlist,
        pyslurm.PyslurmError,
        ValueError,
        TypeError,
        AttributeError,
        MemoryError,
    ) as e:
        return {"error": {"number": 0, "name": "", "said": f"pyslurm: {type(e).__name__}: {e}"}}


def _ids(job: Any) -> Iterator[str]:
    yield str(job.id)
    if job.array_id is not None:
        yield str(job.array_id)
    if job.heterogeneous_id:
        yield f"{job.heterogeneous_id}+{job.heterogeneous_offset or 0}"


def _job(job: Any) -> Record:
    record = {attribute: _read(job, attribute) for attribute in JOB_ATTRIBUTES}
    gres = job.allocated_tres.gres if job.allocated_tres is not None else {}
    record["gpus"] = {name: item.count for name, item in gres.items() if name.split(":")[0] == "gpu"}
    return record


def _read(thing: Any, attribute: str) -> Any:
    """An attribute; text that is not UTF-8 (users write it) with a mark for what cannot be read."""
    try:
        return getattr(thing, attribute)
    except UnicodeDecodeError as e:
        return bytes(e.object).decode(errors="replace")


def serve(pyslurm: Any, requests: IO[str], answers: IO[str]) -> None:
    """Answers until the requests end."""
    slurm = Slurm(pyslurm)
    for line in requests:
        answers.write(json.dumps(answer(slurm, pyslurm, json.loads(line))) + "\n")
        answers.flush()


def main() -> None:
    """Entry point."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(importlib.import_module("pyslurm"), sys.stdin, answers)


if __name__ == "__main__":
    main()
