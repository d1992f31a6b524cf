"""What is done to a training job, and what relight should make of it: a table."""

from dataclasses import dataclass
from enum import StrEnum

from relight.contracts import Action, Cause


class Ending(StrEnum):
    """How a run should end."""

    RESUMED = "resumed"
    """relight restarts the job, and it trains past the step that it failed at."""
    APPROVED = "approved"
    """The same, after relight asked a person, who agreed."""
    STOPPED = "stopped"
    """relight sees that a restart would not help, and starts no more than one."""
    ENDED = "ended"
    """The job has ended, by its owner's or its own wish: relight starts nothing, and watches it no more."""
    REQUEUED = "requeued"
    """Slurm itself starts the job again, relight does not; it trains on."""
    NOTICED = "noticed"
    """relight restarts nothing, but says what it saw; the job trains on."""
    UNTOUCHED = "untouched"
    """Nothing is wrong with the job: relight starts no recovery, and it trains on."""


class Blame(StrEnum):
    """Which node the job should be kept off."""

    NONE = "none"
    VICTIM = "the victim"
    VICTIM_IF_AGAIN = "the victim, where a second attempt met it"
    """Slurm may start the job elsewhere at once: one failure alone blames nobody."""
    EITHER = "the victim or none"
    """The evidence leaves it open; any other node would be wrong."""


class Group(StrEnum):
    """Which aim counts for the time to detection."""

    CRASH = "crash"
    HANG = "hang"
    OTHER = "other"


class Start(StrEnum):
    """What the job is like before the fault."""

    RUNNING = "running"
    TMPFS = "tmpfs"
    """It runs, and its checkpoints are on a small file system of their own."""
    HELD = "held"
    """It waits in the queue; the injector releases it."""


RECOVERABLE = frozenset({Ending.RESUMED, Ending.APPROVED, Ending.REQUEUED})


@dataclass(frozen=True)
class Scenario:
    """One row."""

    name: str
    does: str
    """How the fault comes about."""
    inject: str
    """The injector in `inject.py`, and after a colon its argument."""
    ending: Ending
    causes: tuple[Cause, ...] = ()
    """What relight may call it; empty: it is not judged."""
    actions: tuple[Action, ...] = (Action.RESTART,)
    blame: Blame = Blame.NONE
    group: Group = Group.OTHER
    alone: bool = False
    """It befalls the whole cluster: no other job runs meanwhile."""
    wasted: int = 0
    """Attempts that may fail again before the one that holds."""
    start: Start = Start.RUNNING
    healthy: float = 0
    """Seconds of healthy training that it needs beforehand, at least."""
    patience: float = 150
    """Seconds after the fault in which all must be over."""


_EXCLUDE = (Action.RESTART_EXCLUDE_NODE,)
_ANY_RESTART = (Action.RESTART, Action.RESTART_EXCLUDE_NODE)
_ENDS = (Action.STOP, Action.NONE)
_LAUNCH = (Cause.SCHEDULER, Cause.NODE_FAILURE)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("healthy", "nothing at all", "nothing", Ending.UNTOUCHED),
    Scenario(
        "exception", "a record that is cut off: zlib raises", "order:exception", Ending.RESUMED,
        (Cause.DATA_LOADER,), group=Group.CRASH,
    ),
    Scenario(
        "bad-sample", "the same record is cut off in every attempt", "order:always exception", Ending.STOPPED,
        (Cause.DATA_LOADER,), (Action.RESTART, Action.STOP), group=Group.CRASH,
        wasted=1,
    ),
    Scenario(
        "bad-shape", "shapes do not fit, in every attempt: PyTorch raises",
        "order:always shape", Ending.STOPPED,
        (Cause.USER_CODE,), (Action.RESTART, Action.STOP), group=Group.CRASH,
    ),
    Scenario(
        "cuda", "the script raises CUDA's message of an uncorrectable ECC error",
        "order:cuda", Ending.RESUMED,
        (Cause.GPU_MEMORY_ECC,), _EXCLUDE, Blame.VICTIM, Group.CRASH,
    ),
    Scenario(
        "segfault", "a null pointer is read", "order:segfault", Ending.RESUMED,
        (Cause.USER_CODE, Cause.SOFTWARE_ENV, Cause.UNKNOWN), _ANY_RESTART, Blame.EITHER, Group.CRASH,
    ),
    Scenario(
        "sigkill", "a rank is killed with SIGKILL", "order:sigkill", Ending.RESUMED,
        (Cause.UNKNOWN, Cause.HOST_OOM), _ANY_RESTART, Blame.EITHER, Group.CRASH,
    ),
    Scenario(
        "host-oom", "a rank takes memory until Slurm's limit ends it", "order:eat", Ending.RESUMED,
        (Cause.HOST_OOM,),
    ),
    Scenario(
        "hang", "a rank stops, and the other waits for it in gloo's all-reduce", "order:hang", Ending.RESUMED,
        (Cause.UNKNOWN, Cause.USER_CODE), group=Group.HANG,
    ),
    Scenario(
        "hang-at-start", "a rank stops before the first step of its attempt", "hang_at_start", Ending.RESUMED,
        (Cause.UNKNOWN, Cause.USER_CODE), start=Start.HELD,
    ),
    Scenario(
        "hang-at-restart", "a rank raises, and stops before the first step of the attempt that follows",
        "hang_at_restart", Ending.RESUMED, (Cause.DATA_LOADER, Cause.UNKNOWN, Cause.USER_CODE),
        wasted=1, patience=240,
    ),
    Scenario(
        "slow-rank", "a rank takes eight times as long for a step", "order:slow", Ending.NOTICED,
        healthy=105, patience=180,
    ),
    Scenario(
        "nan", "samples that are no numbers", "order:nan", Ending.APPROVED, (Cause.NUMERICAL,),
        (Action.RESTART, Action.RESTART_PREVIOUS_CHECKPOINT),
    ),
    Scenario(
        "disk-full", "the file system of the checkpoints (a tmpfs) is full", "disk_full", Ending.STOPPED,
        (Cause.STORAGE,), _ENDS, start=Start.TMPFS,
    ),
    Scenario(
        "cut-checkpoint", "the newest checkpoint is cut off, then a rank raises",
        "cut_checkpoint", Ending.RESUMED,
        (Cause.DATA_LOADER,), (Action.RESTART, Action.RESTART_PREVIOUS_CHECKPOINT), group=Group.CRASH,
    ),
    Scenario(
        "bad-pointer", "the file `latest` names no checkpoint, then a rank raises",
        "bad_pointer", Ending.RESUMED,
        (Cause.DATA_LOADER,), (Action.RESTART, Action.RESTART_PREVIOUS_CHECKPOINT), group=Group.CRASH,
    ),
    Scenario(
        "xid-79", "the kernel log says that a GPU fell off the bus, and the rank stops", "xid:79 hang",
        Ending.RESUMED, (Cause.GPU_FALLEN_OFF_BUS,), _EXCLUDE, Blame.VICTIM,
    ),
    Scenario(
        "xid-48", "the kernel log says a double bit error, and the rank raises CUDA's error", "xid:48 cuda",
        Ending.RESUMED, (Cause.GPU_MEMORY_ECC,), _EXCLUDE, Blame.VICTIM,
    ),
    Scenario(
        "xid-94", "the kernel log says a contained memory error, and the rank raises CUDA's error",
        "xid:94 cuda",
        Ending.RESUMED, (Cause.GPU_MEMORY_ECC,), _EXCLUDE, Blame.VICTIM,
    ),
    Scenario(
        "xid-13", "the kernel log says an exception in a kernel of the program, and the rank raises it",
        "xid:13 illegal-access", Ending.RESUMED, (Cause.USER_CODE,),
    ),
    Scenario(
        "xid-63", "the kernel log says that memory was remapped; training goes on", "xid:63",
        Ending.UNTOUCHED,
    ),
    Scenario(
        "node-loss", "a node dies: slurmd and all that ran on it", "node_loss", Ending.RESUMED,
        (Cause.NODE_FAILURE,), _ANY_RESTART, Blame.EITHER,
    ),
    Scenario(
        "node-frozen", "a node's slurmd answers no more, while its ranks run on",
        "node_frozen", Ending.RESUMED,
        (Cause.NODE_FAILURE,), _ANY_RESTART, Blame.EITHER,
    ),
    Scenario(
        "bad-node", "whatever starts on one node is killed after 2 s", "bad_node", Ending.RESUMED,
        (Cause.UNKNOWN, Cause.HOST_OOM, Cause.NODE_FAILURE), _ANY_RESTART, Blame.VICTIM_IF_AGAIN,
        wasted=1,
    ),
    *(
        Scenario(
            f"{what}-at-{when}", f"{does} when the job {starts}: Slurm requeues it, held", f"{what}:{when}",
            Ending.RESUMED, causes, _ANY_RESTART, Blame.EITHER, alone=True, wasted=1,
            start=Start.HELD if when == "start" else Start.RUNNING, patience=90,
        )
        for what, does in (
            ("prolog", "the prolog of a node fails"),
            ("launch", "slurmd cannot write the job's script, once,"),
        )
        for when, starts, causes in (
            ("start", "starts", _LAUNCH),
            ("restart", "starts again after a crash", (*_LAUNCH, Cause.DATA_LOADER)),
        )
    ),
    Scenario(
        "preemption", "a job of higher priority takes the nodes for 3 s", "preemption", Ending.REQUEUED,
        (Cause.PREEMPTION,), (Action.NONE,),
    ),
    Scenario(
        "time-limit", "the job reaches its time limit",
        "time_limit", Ending.ENDED, (Cause.TIME_LIMIT,), _ENDS,
    ),
    Scenario(
        "scancel", "its owner cancels the job", "scancel", Ending.ENDED, (Cause.USER_CANCEL,), _ENDS,
    ),
    Scenario(
        "slurmctld-restart", "slurmctld is killed, and started 5 s later", "slurmctld_restart",
        Ending.UNTOUCHED, alone=True,
    ),
    Scenario(
        "slurmctld-crash", "the same, and a rank raises meanwhile", "slurmctld_restart:exception",
        Ending.RESUMED, (Cause.DATA_LOADER,), alone=True,
    ),
    Scenario(
        "sensor-restart", "the sensor is killed, a rank raises, the sensor is started", "sensor_restart",
        Ending.RESUMED, (Cause.DATA_LOADER,), alone=True,
    ),
    Scenario(
        "worker-kill", "a rank raises, and the worker is killed in the recovery",
        "worker_kill", Ending.RESUMED,
        (Cause.DATA_LOADER,), alone=True,
    ),
)  # fmt: skip
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
