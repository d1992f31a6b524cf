"""What the commands of the documentation meet: real Slurm, real Temporal, `relight up`, training jobs.

Pages speak of job 4243, of /ckpt/llm-7b, of node07. Here each page has a directory and a training job of its
own; where a command takes something for granted (a plan that waits, a node that is drained), that is brought
about before.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from relight.cli.devserver import find_temporal, free_port
from relight.cli.main import app
from tests.docs.console import ROOT, Command, File
from tests.docs.nodes import accuse, drain
from tests.docs.places import JOB, Place
from tests.slurm.cluster import SlurmCluster

CLUSTER = "alps"
SETTINGS = """
cluster = "{cluster}"
scheduler = "slurm-cli"
state_dir = "{root}/state"
policy_file = "{root}/policy.yaml"

[archive]
url = "{root}/archive"
"""
POLICY = "policies: {default: {settle: 200ms, approval_deadline: 10m, confirm_window: 20s}}\n"
STEPS = 25
"""So many steps the tutorial's training makes before it is told to hang: its rhythm is known by then."""
SPARE = 4
"""So many plans wait from the beginning on; more are made when they are needed."""
FILES = {
    "train.log": "step 41 loss 2.1\nstep 42 loss 2.0\nTraceback (most recent call last):\n"
    '  File "train.py", line 9, in <module>\n    main()\nValueError: bad batch\n',
    "dmesg.txt": "[1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=17, GPU has fallen off the bus.\n",
    "slurmctld.log": "[2026-12-01T03:12:44.000] error: Nodes node003 not responding\n",
    "canary.sh": JOB,
    "train-0.log": "[rank0]: step 41 loss 2.1\n[rank0]: step 42 loss 2.0\n",
}
"""What pages take for granted in the directory that their reader is in."""
_SHELL = re.compile(r"[|<>;&$*]|^[A-Z_]+=")


class World:
    """Everything that runs for the tests of the documentation."""

    def __init__(self, root: Path, slurm: SlurmCluster, files: Sequence[File]) -> None:
        """Sets up nothing yet. Of `files`, settings in `relight.toml` are taken too."""
        self.root, self.slurm, self.files = root, slurm, files
        self.port, self.ui_port = free_port(), free_port()
        self._places: dict[str, Place] = {}
        self._spare: list[Place] = []
        self._made = SPARE
        self._ended: Place | None = None
        self._up: subprocess.Popen[bytes] | None = None

    # ---- starting and stopping -------------------------------------------------
    def __enter__(self) -> "World":
        settings = self.root / "relight.toml"
        taught = "".join(file.text for file in self.files if file.name == "relight.toml")
        settings.write_text(SETTINGS.format(cluster=CLUSTER, root=self.root) + taught)
        (self.root / "policy.yaml").write_text(POLICY)
        bin_dirs = [Path(sys.executable).parent, find_temporal().parent]
        self.env = {
            **{k: v for k, v in self.slurm.env.items() if not k.startswith(("RELIGHT_", "TEMPORAL_"))},
            "RELIGHT_CONFIG": str(settings),
            "TEMPORAL_ADDRESS": f"127.0.0.1:{self.port}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "200",
        }
        self.env["PATH"] = ":".join([*map(str, bin_dirs), self.env["PATH"]])
        with (self.root / "up.log").open("wb") as log:
            argv = [sys.executable, "-m", "relight", "up", f"--port={self.port}", f"--ui-port={self.ui_port}"]
            self._up = subprocess.Popen(argv, env=self.env, stdout=log, stderr=log)
        # While it starts: trainings whose plans wait when a page needs one.
        self._spare = [Place(self, f"spare {number}") for number in range(SPARE)]
        for place in self._spare:
            place.start_job()
        self.until("relight is up", lambda: "relight is up" in self.log(), 90)
        for place in self._spare:
            place.watch()
            place.break_it()
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is not None:
            print(self.log()[-4000:], file=sys.stderr)
        if self._up is not None:
            self._up.send_signal(signal.SIGTERM)
            self._up.wait(60)
        self.slurm.run("scancel", "--user", "root")
        if exc[0] is None:
            self.slurm.wait_idle()  # the next tests find the cluster as they want it

    def log(self) -> str:
        """What `relight up` has written."""
        return (self.root / "up.log").read_text(errors="replace")

    def until(self, what: str, test: Callable[[], Any], timeout: float = 60, every: float = 0.05) -> Any:
        """Waits until `test` gives something true, and returns that."""
        end = time.monotonic() + timeout
        while not (found := test()):
            assert self._up is None or self._up.poll() is None, self.log()[-4000:]
            assert time.monotonic() < end, f"not within {timeout} s: {what}\n{self.log()[-4000:]}"
            time.sleep(every)
        return found

    # ---- places ----------------------------------------------------------------
    def place(self, page: str) -> Place:
        """The page's, made at its first command, with the files that it shows or takes for granted."""
        if page not in self._places:
            place = self._places[page] = Place(self, page)
            shown = {file.name: file.text for file in self.files if file.page == page}
            for name, text in {**FILES, **shown}.items():
                if name == "train.log" and "sbatch first.sh" in (ROOT / page).read_text():
                    continue  # its job will write it
                (place.dir / name).parent.mkdir(exist_ok=True)
                (place.dir / name).write_text(text)
            subprocess.run(["gzip", "-kf", "train.log"], cwd=place.dir, check=False)
        return self._places[page]

    # ---- commands --------------------------------------------------------------
    def relight(self, *args: str, check: bool = True, cwd: Path | None = None, answer: str = "") -> str:
        """Runs the command in this process, as a user would, and returns what it says."""
        with contextlib.chdir(cwd or self.root), self._environment():
            done = CliRunner().invoke(app, args, input=answer)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if check:
            assert done.exit_code == 0, f"relight {shlex.join(args)}: exit {done.exit_code}\n{done.output}"
        self.exit_code = done.exit_code
        return done.stdout if check else done.output

    def run(self, command: Command) -> None:
        """Does what the page says. Fails where it does not end as the page says."""
        place = self.place(command.page)
        text = self._here(place, command.text)
        self._prepare(place, text)
        wanted = int(found[1]) if (found := re.search(r"exits with (\d+)", command.remark)) else 0
        words = shlex.split(text)
        if words[0] == "relight" and not _SHELL.search(re.sub(r"'[^']*'|\"[^\"$]*\"", "", text)):
            said = self.relight(*words[1:], check=False, cwd=place.dir, answer="y\n")
            code = self.exit_code
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=place.dir, env=self.env, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            said, code = done.stdout + done.stderr, done.returncode
        assert code == wanted, f"{text}: exit {code}, not {wanted}\n{said}"
        self._note(place, text, said)

    @contextlib.contextmanager
    def _environment(self) -> Iterator[None]:
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(self.env)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _here(self, place: Place, text: str) -> str:
        """The command with what there is here in place of what the page speaks of."""
        if re.search(r"\b4243\b(?!\.)|\bJOB\b|/ckpt/llm-7b", text) and not place.job:
            if "relight watch 4243" in (ROOT / place.page).read_text() or "approve" not in text:
                place.start_job()
            else:
                self._take_spare(place)
        if "recover:alps:" in text:
            text = re.sub(r"'?recover:alps:4243:0:[0-9a-f.]+'?", self.ended(), text)
        if "--workflow-id ID" in text:
            other = self._waiting_one()
            digest = other.waiting()["status"]["plan_digest"]
            text = text.replace("--workflow-id ID", f"--workflow-id {other.waiting()['recovery_id']}")
            text = text.replace("640662a2", digest)
        etc = place.dir / "etc"
        if "/etc/" in text:
            etc.mkdir(exist_ok=True)
        for told, here in (
            (r"\b4243\b(?!\.)|\bJOB\b", place.job),
            (r"/ckpt/llm-7b", str(place.dir / "checkpoints")),
            (r"/scratch/me/run7/logs", str(place.dir)),
            (r"/tmp/first", str(place.dir)),
            (r"/tmp/slurm-\w+/slurm.conf", self.env["SLURM_CONF"]),
            (r"/etc/(relight|systemd/system)/", f"{etc}/"),
            (r"(?<= )deploy/", f"{ROOT}/deploy/"),
            (r"\bnode07\b", "node04"),
            (r"(?<=--partition)([= ])(debug|gpu)\b", r"\1main"),
        ):
            text = re.sub(told, here, text)
        if place.page == "docs/tutorial.md" and place.job:
            text = re.sub(r"^((?:relight \w+|scancel) )1\b", rf"\g<1>{place.job}", text)
        return text

    def _waiting_one(self) -> Place:
        """A job whose plan waits, or soon will."""
        if self._spare:
            return self._spare.pop()
        self._made += 1
        place = Place(self, f"spare {self._made}")
        place.start_job()
        place.watch()
        place.break_it()
        return place

    def _take_spare(self, place: Place) -> None:
        spare = self._waiting_one()
        place.job, place.watched, place.broken = spare.job, True, True

    def ended(self) -> str:
        """The id of a recovery that has ended."""
        if self._ended is None:
            self._ended = self._waiting_one()
            self._ended.waiting()
            self.relight("approve", self._ended.job, "--yes")
        assert self._ended.outcome() == "resumed"
        return str(self._ended.view()["recoveries"][-1]["recovery_id"])

    def _prepare(self, place: Place, text: str) -> None:
        """Brings about what the command takes for granted."""
        about = re.match(r"relight (\w+)", text)
        name = about[1] if about else ""
        if place.job and place.job in text and name not in {"watch", ""}:
            place.watch()
        if place.job and name in {"approve", "reject", "logs"}:
            place.break_it()
            place.waiting()
        if name == "doctor" and place.job in text.split():
            self.until("its steps are seen", lambda: (place.view()["status"] or {}).get("progress"), 30, 0.5)
        if name == "checkpoints":
            self.until("a checkpoint", place.checkpoints)
        if place.page == "docs/tutorial.md":
            self._follow_tutorial(place, name, text)
        if text.startswith("relight nodes release"):
            drain(self.env["TEMPORAL_ADDRESS"], CLUSTER, "node04")
            self.until(
                "it is drained", lambda: "DRAIN" in self.slurm.run("scontrol", "show", "node", "node04")
            )
        if text.startswith(("relight nodes clear", "relight guard reset")):
            accuse(self.env["TEMPORAL_ADDRESS"], CLUSTER, "node04")
            self.until("the guard knows", lambda: '"node04"' in self.relight("nodes", "--json"), every=0.3)

    def _follow_tutorial(self, place: Place, name: str, text: str) -> None:
        """Waits where its reader is told to look again."""
        log = place.dir / "train.log"
        if name in {"progress", "watch"}:
            self.until("its first steps", lambda: "iteration" in log.read_text() if log.exists() else "")
        if "fault.json" in text:
            self.until("its rhythm is known", lambda: log.read_text().count("iteration") > STEPS)
        if name == "why":
            place.waiting()
        if name == "audit":
            assert place.outcome() == "resumed"

    def _note(self, place: Place, text: str, said: str) -> None:
        """What the command has changed here."""
        if found := re.search(r"Submitted batch job (\d+)", said):
            place.job = found[1]
        if text.startswith("relight watch"):
            place.watched = True
        if text.startswith("relight unwatch"):
            place.watched = False
        if "fault.json" in text:
            place.broken = True
        if text.startswith(("relight approve", "relight reject")):
            place.broken = False
