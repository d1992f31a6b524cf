r"""A real Slurm cluster on one machine, in one directory, for tests and demonstrations.

    with SlurmCluster(nodes=4, gpus_per_node=8) as cluster:
        job = cluster.sbatch("#!/bin/bash\nsrun hostname\n", "-N2")
        cluster.wait_job(job, "COMPLETED")
        cluster.kill_node("node02")
        cluster.wait_node("node02", "DOWN")

munged, slurmctld, one slurmd for each node and, with accounting, slurmdbd and MariaDB: every daemon is a
child process of this one, listens on 127.0.0.1 only, keeps its files below `root`, and ends with this one.
Wants root (each slurmd gets its own host name by `unshare`) and Linux. Made for Slurm 22.05 to 25.11.

From a shell: `python -m tests.slurm.cluster [--nodes N] [--gpus N] [--accounting] [-- COMMAND...]`.
"""

import argparse
import contextlib
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.slurm.conf import Ports, Shape, gres_conf, slurm_conf, slurmdbd_conf
from tests.slurm.processes import MARK, accepts, free_ports, kill_all, open_uts_namespace, uts_namespace

T = TypeVar("T")

PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "scontrol",
    "squeue",
    "sinfo",
    "scancel",
    "setpriv",
    "unshare",
)
"""What a cluster without accounting needs."""

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"

# What slurmctld logs, by DebugFlags=Protocol, of a request that changes something. Requests that the daemons
# and the job's own srun send (step and epilog completions, REQUEST_CANCEL_JOB_STEP) are not among them.
_MUTATION = re.compile(
    r"^\[(?P<at>[^]]+)\] .*received opcode (?P<opcode>REQUEST_(?:"
    r"(?:UPDATE|CREATE|DELETE|SUBMIT|KILL)_\w+|SUSPEND\w*|JOB_REQUEUE|TOP_JOB|JOB_NOTIFY|(?:HET_JOB|RESOURCE)_ALLOCATION"
    r"|RECONFIGURE\w*|SHUTDOWN\w*|CONTROL\w*|REBOOT_NODES|SET_\w+"
    r"))\b.* uid (?P<uid>\d+)",
    re.MULTILINE,
)

# Run as root in a namespace of its own: this cluster's /etc/hosts and, for a node, its name as the host name.
# slurmctld calls srun back by the host name that srun sent (24.11's `scontrol requeue` fails when that name
# does not resolve), so every node's name, and this machine's, must resolve to 127.0.0.1.
_ENTER = 'mount --bind "$1" /etc/hosts && { test -z "$2" || hostname "$2"; } && shift 2 && exec "$@"'


class ClusterError(RuntimeError):
    """The cluster could not be started, or did not do what was waited for."""


def missing_programs() -> tuple[str, ...]:
    """The programs a cluster needs that are not installed."""
    path = f"{os.environ.get('PATH', os.defpath)}:{_SBIN}"
    return tuple(p for p in PROGRAMS if not shutil.which(p, path=path))


class SlurmCluster:
    """A running cluster. Start it from the main thread: its daemons end with the thread that started them."""

    def __init__(
        self, *, name: str = "lab", root: Path | None = None, timeout: float = 60, **shape: Any
    ) -> None:
        """Sets up nothing yet.

        Args:
            name: the cluster's name.
            root: where to keep everything; kept after the end. None: a temporary directory.
            timeout: the longest wait for anything, in seconds.
            shape: fields of `Shape`.
        """
        self.name, self.timeout = name, timeout
        self.shape = Shape(**shape)
        self.root = root or Path()
        self._keep = root is not None
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._namespaces: dict[str, int] = {}
        """The host name namespace of each slurmd, as an open file: else, once it is gone, Linux gives its
        number to the next one, which may be another cluster's, and that would be killed in its place."""
        self._ports = Ports(0)

    # ---- starting and stopping -------------------------------------------------
    def start(self) -> "SlurmCluster":
        """Starts all daemons and waits until all nodes are idle (about a second).

        Raises:
            ClusterError: a program is missing, or a daemon did not come up.
        """
        if missing := missing_programs():
            raise ClusterError(
                f"Slurm is not installed: no {', '.join(missing)}. "
                "On Debian or Ubuntu, as root: scripts/install-test-services"
            )
        if os.geteuid():
            raise ClusterError("the test cluster must be started as root")
        if self._keep:
            self.root = self.root.absolute()
            self.root.mkdir(parents=True, exist_ok=True)
        else:
            self.root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        try:
            self._configure()
            self._start_munge()
            if self.shape.accounting:
                self._start_accounting()
            self.start_ctld()
            for node in self.shape.node_names:
                self._start_slurmd(node)
            self.wait_idle()
        except BaseException:
            self.stop(keep=True)
            raise
        return self

    def stop(self, keep: bool = False) -> None:
        """Ends all daemons and jobs, and removes the directory unless it was given or is to be kept."""
        self._end("slurmctld")
        slurmds = [name for name in self._daemons if name.startswith("slurmd.")]
        for name in slurmds:
            self._end(name, signal.SIGKILL)
        if self._daemons:
            own = {daemon.pid for daemon in self._daemons.values()}
            namespaces = [os.fstat(fd).st_ino for fd in self._namespaces.values()]
            kill_all(f"{self.root}:", self.root / "spool", namespaces, own)
            while self._namespaces:
                os.close(self._namespaces.popitem()[1])
        self._end("slurmdbd")
        self._end("mariadbd", signal.SIGKILL)
        self._end("munged")
        if not keep and not self._keep:
            shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> "SlurmCluster":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def env(self) -> dict[str, str]:
        """What a client of this cluster needs: this process's environment, with SLURM_CONF and PATH set."""
        env = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_"))
        }
        env["PATH"] = f"{env.get('PATH', os.defpath)}:{_SBIN}"
        env["SLURM_CONF"] = str(self.root / "slurm.conf")
        return env

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return self.shape.node_names

    # ---- faults ----------------------------------------------------------------
    def kill_node(self, node: str) -> None:
        """The node dies: its slurmd and every task on it, at once and with no word to slurmctld."""
        name = f"slurmd.{node}"
        self._end(name, signal.SIGKILL)
        fd = self._namespaces.get(name)
        namespaces = () if fd is None else (os.fstat(fd).st_ino,)
        kill_all(f"{self.root}:{name}\0", self.root / "spool" / node, namespaces)

    def freeze_node(self, node: str) -> None:
        """The node's slurmd stops answering while its tasks run on: a hung daemon, or a lost network."""
        self._daemons[f"slurmd.{node}"].send_signal(signal.SIGSTOP)

    def thaw_node(self, node: str) -> None:
        """The frozen slurmd goes on; one that was killed does not."""
        if (daemon := self._daemons.get(f"slurmd.{node}")) is not None:
            daemon.send_signal(signal.SIGCONT)

    def restore_node(self, node: str) -> None:
        """Starts the slurmd of a killed node, and waits until the node is of use again."""
        if f"slurmd.{node}" not in self._daemons:
            self._start_slurmd(node)
        self._until(f"node {node} is back", lambda: not re.search(r"DOWN|UNKNOWN|\*", self.node_state(node)))

    def kill_ctld(self) -> None:
        """Ends slurmctld with SIGKILL: it forgets what it had not saved, new jobs among it."""
        self._end("slurmctld", signal.SIGKILL)

    def stop_ctld(self) -> None:
        """Stops slurmctld in order: it saves its state first."""
        self._end("slurmctld", signal.SIGTERM)

    def freeze_ctld(self) -> None:
        """Slurmctld accepts connections and says nothing."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def thaw_ctld(self) -> None:
        """The frozen slurmctld goes on."""
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def start_ctld(self) -> None:
        """Starts slurmctld, also after `kill_ctld`, and waits until it answers."""
        # -i, or 25.11 and later refuse a state directory without the files written every few minutes.
        ignore_errors = ["-i"] if (self.root / "state" / "job_state").exists() else []
        self._spawn("slurmctld", self._in_namespace([self._program("slurmctld"), "-D", *ignore_errors]))
        self._until(
            "slurmctld answers", lambda: " UP" in self.run("scontrol", "ping", check=False), of="slurmctld"
        )

    # ---- what a user does ------------------------------------------------------
    def run(self, *argv: str, check: bool = True, input: str | None = None) -> str:
        """Runs a command as a client of this cluster and returns what it printed.

        Raises:
            ClusterError: it failed, and `check` is set.
        """
        done = subprocess.run(
            argv,
            env=self.env,
            cwd=self.root,
            input=input,
            capture_output=True,
            text=True,
            timeout=self.timeout,
        )
        if check and done.returncode:
            raise ClusterError(f"{shlex.join(argv)}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def sbatch(self, script: str, *options: str) -> str:
        """Submits a batch script and returns the job's id."""
        return self.run("sbatch", "--parsable", *options, input=script).strip().split(";")[0]

    def job(self, job_id: str) -> dict[str, str]:
        """The words of `scontrol show job` (its values must hold no white space)."""
        text = self.run("scontrol", "-o", "show", "job", job_id)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def job_state(self, job_id: str) -> str:
        """RUNNING and so on; empty when slurmctld has forgotten the job."""
        return self.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", job_id, check=False).strip()

    def nodes_of(self, job_id: str) -> tuple[str, ...]:
        """The nodes that a job runs on, in order."""
        hosts = self.run("squeue", "-h", "-t", "all", "-o", "%N", "-j", job_id).strip()
        return tuple(self.run("scontrol", "show", "hostnames", hosts).split()) if hosts else ()

    def wait_job(self, job_id: str, states: str | Iterable[str], timeout: float | None = None) -> str:
        """Waits until the job is in one of these states, and returns it."""
        wanted = {states} if isinstance(states, str) else set(states)

        def reached() -> str:
            state = self.job_state(job_id)
            return state if state in wanted else ""

        return self._until(f"job {job_id} is {' or '.join(sorted(wanted))}", reached, timeout)

    def node_state(self, node: str) -> str:
        """As sinfo says it, in capitals: IDLE, DRAINED, DOWN*, ..."""
        return self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T").split("\n")[0].strip().upper()

    def wait_node(self, node: str, word: str, timeout: float | None = None) -> None:
        """Waits until `word` is part of the node's state."""
        self._until(f"node {node} is {word}", lambda: word.upper() in self.node_state(node), timeout)

    # ---- what slurmctld did ----------------------------------------------------
    def ctld_log(self) -> str:
        """What slurmctld has logged."""
        log = self.root / "log" / "slurmctld.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def mutations(self) -> list[str]:
        """Every request to change something that slurmctld has received, oldest first: time, opcode, user id.

        Job updates (hold and release are updates of the priority), requeues, cancellations, submissions, node
        updates and administrative requests. What slurmctld does by itself, and what a job's own srun asks for
        within its allocation (new steps, signals to its steps), is not listed.
        """
        return [f"{m['at']} {m['opcode']} uid {m['uid']}" for m in _MUTATION.finditer(self.ctld_log())]

    # ---- inside ----------------------------------------------------------------
    def _program(self, *names: str) -> str:
        for name in names:
            if found := shutil.which(name, path=self.env["PATH"]):
                return found
        raise ClusterError(f"not installed: {' or '.join(names)}")

    def _version(self) -> tuple[int, ...]:
        """(22, 5, 8) and the like."""
        done = subprocess.run([self._program("slurmctld"), "-V"], capture_output=True, text=True, check=True)
        return tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:3])

    def _configure(self) -> None:
        root, shape = self.root, self.shape
        root.chmod(0o755)  # munged refuses a socket that others cannot reach
        for directory in ("log", "run", "spool", "state", "munge", "dev"):
            (root / directory).mkdir(exist_ok=True)
        key = root / "munge" / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        self._ports = Ports(free_ports(shape.nodes + 2))
        full_name = socket.gethostname()
        host, user = full_name.split(".")[0], pwd.getpwuid(os.geteuid()).pw_name
        names = ["localhost", full_name, host, *shape.node_names]
        (root / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in names))
        (root / "slurm.conf").write_text(slurm_conf(shape, root, self._ports, self.name, host, user))
        if shape.gpus_per_node:
            for i in range(shape.gpus_per_node):
                with contextlib.suppress(FileExistsError):
                    (root / "dev" / f"nvidia{i}").symlink_to("/dev/null")
            (root / "gres.conf").write_text(gres_conf(shape, root))
        if self._version() >= (24, 5):  # older ones know no such word, and need no cgroups with linuxproc
            (root / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        if shape.accounting:
            (root / "slurmdbd.conf").touch(0o600)
            (root / "slurmdbd.conf").write_text(slurmdbd_conf(root, self._ports, host, user))

    def _spawn(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        marked = {**self.env, MARK: f"{self.root}:{name}", **(env or {})}
        argv = [self._program("setpriv"), "--pdeathsig", "KILL", "--", *argv]
        with (self.root / "log" / f"{name}.out").open("ab") as out:
            daemon = subprocess.Popen(
                argv,
                env=marked,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._daemons[name] = daemon
        return daemon

    def _in_namespace(self, argv: Sequence[str], hostname: str = "") -> list[str]:
        uts = ["--uts"] if hostname else []
        hosts = str(self.root / "hosts")
        return [
            self._program("unshare"),
            "--mount",
            *uts,
            "/bin/sh",
            "-c",
            _ENTER,
            "sh",
            hosts,
            hostname,
            *argv,
        ]

    def _start_munge(self) -> None:
        munge = self.root / "munge"
        self._spawn(
            "munged",
            [
                self._program("munged"), "--foreground", "--num-threads=4",
                f"--socket={munge / 'socket'}", f"--key-file={munge / 'munge.key'}",
                f"--seed-file={munge / 'seed'}", f"--pid-file={self.root / 'run/munged.pid'}",
                f"--log-file={self.root / 'log/munged.log'}",
            ],
        )  # fmt: skip
        self._until("munged is up", (munge / "socket").exists, of="munged")

    def _start_accounting(self) -> None:
        data, sock = self.root / "db", self.root / "run" / "mysql.sock"
        me = pwd.getpwuid(os.geteuid()).pw_name
        data.mkdir(mode=0o700, exist_ok=True)
        if not (data / "mysql").is_dir():
            self.run(
                self._program("mariadb-install-db", "mysql_install_db"), "--no-defaults", f"--user={me}",
                f"--datadir={data}", "--auth-root-authentication-method=socket",
                f"--auth-root-socket-user={me}", "--skip-test-db", "--skip-log-bin",
            )  # fmt: skip
        # Made here and not by slurmdbd, whose reconnect after "no such database" fails with libmariadb 3.4.10
        # (Debian 13).
        init = self.root / "db-init.sql"
        init.write_text("CREATE DATABASE IF NOT EXISTS slurm_acct;\n")
        self._spawn(
            "mariadbd",
            [
                self._program("mariadbd", "mysqld"), "--no-defaults", f"--user={me}", f"--datadir={data}",
                f"--socket={sock}", "--skip-networking", f"--init-file={init}",
                f"--pid-file={self.root / 'run/mariadbd.pid'}", "--innodb-buffer-pool-size=64M",
                "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0",
                "--innodb-lock-wait-timeout=900", "--skip-log-bin",
            ],
        )  # fmt: skip
        self._until("mariadbd is up", sock.exists, of="mariadbd")
        self._spawn("slurmdbd", [self._program("slurmdbd"), "-D"], {"MYSQL_UNIX_PORT": str(sock)})
        self._until("slurmdbd is up", lambda: accepts(self._ports.database), of="slurmdbd")
        self.run(
            "sacctmgr", "-i", "add", "cluster", self.name, check=False
        )  # newer slurmctlds do it themselves

    def _start_slurmd(self, node: str) -> None:
        name = f"slurmd.{node}"
        daemon = self._spawn(name, self._in_namespace([self._program("slurmd"), "-D", "-N", node], node))
        here = uts_namespace(os.getpid())

        def entered() -> int | None:
            fd = open_uts_namespace(daemon.pid)
            if fd is not None and os.fstat(fd).st_ino == here:
                os.close(fd)
                return None
            return fd

        fd = self._until(f"the namespace of {node}", entered, of=name)
        assert fd is not None
        if (before := self._namespaces.pop(name, None)) is not None:
            os.close(before)
        self._namespaces[name] = fd

    def wait_idle(self) -> None:
        """Waits until all nodes are idle."""
        try:
            self._until("all nodes are idle", self._all_idle)
        except ClusterError as error:
            nodes = self.run("sinfo", "-N", "-o", "%N %T %E", check=False)
            raise ClusterError(f"{error}\n{nodes}{self.run('squeue', '-a', check=False)}") from None

    def _all_idle(self) -> bool:
        return self.run("sinfo", "-h", "-o", "%D %T", check=False).strip() == f"{self.shape.nodes} idle"

    def _end(self, name: str, sig: signal.Signals = signal.SIGTERM) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None or daemon.poll() is not None:
            return
        daemon.send_signal(sig)
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _until(
        self, what: str, test: Callable[[], T], timeout: float | None = None, of: str | None = None
    ) -> T:
        """Waits until `test` is true and returns its value; the daemon `of` must live meanwhile."""
        end = time.monotonic() + (timeout or self.timeout)
        while not (value := test()):
            if of is not None and (code := self._daemons[of].poll()) is not None:
                raise ClusterError(f"{of} ended with {code} before {what}: {self._last_words(of)}")
            if time.monotonic() > end:
                raise ClusterError(
                    f"waited in vain until {what}; slurmctld says: {self._last_words('slurmctld')}"
                )
            time.sleep(0.02)
        return value

    def _last_words(self, daemon: str) -> str:
        files = (self.root / "log" / f"{daemon}{suffix}" for suffix in (".log", ".out"))
        return "\n".join(f.read_text(errors="replace")[-2000:] for f in files if f.exists())


def main() -> int:
    """Starts a cluster for a command, or until Ctrl-C, and returns the command's exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.slurm.cluster", description="A real Slurm cluster on this machine."
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=0, help="pretended GPUs of each node")
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and MariaDB")
    parser.add_argument("command", nargs="*", help="run this with the cluster (default: stay until Ctrl-C)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cluster = SlurmCluster(
        nodes=args.nodes, gpus_per_node=args.gpus, accounting=args.accounting, slurmd_timeout=3
    )
    try:
        with cluster:
            if args.command:
                return subprocess.run(args.command, env=cluster.env).returncode
            print(f"export SLURM_CONF={cluster.root / 'slurm.conf'}", flush=True)
            signal.pause()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
