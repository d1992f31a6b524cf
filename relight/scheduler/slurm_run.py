"""Runs Slurm's commands: without a shell, bounded in time and output, in an environment of its own."""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from relight.contracts import clean_text
from relight.scheduler.port import NotPermitted, SchedulerError, SchedulerUnreachable
from relight.scheduler.slurm_errors import meaning

MAX_OUTPUT = 64 * 1024 * 1024
"""Bytes. More from one command is an error: a listing of a hundred thousand jobs is half as long."""

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_CHUNK = 64 * 1024
_COLUMNS = ("--format=", "--Format=", "--delimiter=")
"""Options that say how a listing looks: nothing to tell people."""
_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Says how slurmctld is reached. All other SLURM_*, SBATCH_*, ... would change what options mean."""
_DROPPED = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command that reads: nothing of the caller changes its output.

    Times are UTC: Slurm prints and reads them in the local time zone of the command.
    """
    kept = {k: v for k, v in environ.items() if k in _KEPT or not k.startswith(_DROPPED)}
    return {**kept, "TZ": "UTC", "LC_ALL": "C"}


def account_of(user: str) -> pwd.struct_passwd:
    """The account of a user on this machine; empty: of this process.

    Raises:
        NotPermitted: there is no such account, so nothing can be done in its name.
    """
    try:
        return pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
    except KeyError as e:
        raise NotPermitted(f"no job can be submitted as {user!r}: this machine has no such user") from e


class SlurmCommands:
    """Slurm's commands, found once and run as often as needed."""

    def __init__(self, bin_dir: str = "", timeout: float = 15.0, max_output: int = MAX_OUTPUT) -> None:
        """Looks for nothing yet.

        Args:
            bin_dir: where the commands are; empty: on PATH.
            timeout: the longest that one command may take, in seconds.
            max_output: the most bytes that one command may print.
        """
        self._bin_dir = bin_dir
        self._timeout = timeout
        self._max_output = max_output
        self.runs = 0
        """How many commands were started."""

    def path(self, program: str) -> str:
        """Where a command is.

        Raises:
            SchedulerUnreachable: it is not installed.
        """
        where = self._bin_dir or f"{os.environ.get('PATH', os.defpath)}:{SBIN}"
        found = shutil.which(program, path=where)
        if found is None:
            hint = (
                "check slurm.bin_dir" if self._bin_dir else "install Slurm's client commands (slurm-client)"
            )
            raise SchedulerUnreachable(
                f"there is no command {program} on {where}: {hint}, or set slurm.bin_dir to where they are"
            )
        return found

    async def run(self, program: str, *args: str) -> str:
        """Runs a command and returns what it printed.

        Raises:
            SchedulerError: it failed; the kind says what Slurm meant.
        """
        out, _ = await self._execute(program, args, env=clean_environment(os.environ))
        return out

    async def ask(self, program: str, *args: str) -> str:
        """Runs a command that prints something unless it failed, whatever its exit status says.

        Raises:
            SchedulerError: as for `run`, and when nothing came.
        """
        out, err = await self._execute(program, args, env=clean_environment(os.environ))
        if not out:
            raise meaning(_asked(program, args), err)
        return out

    async def run_as(
        self, account: pwd.struct_passwd, program: str, *args: str, env: Mapping[str, str], script: str
    ) -> str:
        """Runs a command with the rights and groups of an account, and no others (another's takes root).

        Args:
            account: whose command it shall be.
            program: the command.
            args: its arguments.
            env: its whole environment, beside how slurmctld is reached.
            script: its standard input.

        Raises:
            NotPermitted: this process may not run anything as that user.
            SchedulerError: as for `run`.
        """
        reach = {k: v for k, v in os.environ.items() if k in _KEPT}
        out, _ = await self._execute(program, args, env={**env, **reach}, script=script, account=account)
        return out

    async def _execute(
        self,
        program: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str],
        script: str | None = None,
        account: pwd.struct_passwd | None = None,
    ) -> tuple[str, str]:
        """Standard output and standard error of a command that ended with status 0."""
        path, asked, identity = self.path(program), _asked(program, args), _identity(account)
        self.runs += 1
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                *args,
                stdin=asyncio.subprocess.DEVNULL if script is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
                cwd="/",
                umask=0o022,
                start_new_session=True,
                user=identity.user,
                group=identity.group,
                extra_groups=identity.groups,
            )
        except ValueError as e:  # a NUL byte in an argument
            raise SchedulerError(f"{asked}: {e}") from e
        except PermissionError as e:
            raise NotPermitted(f"{asked}: {e}") from e
        except OSError as e:
            raise SchedulerUnreachable(f"{asked}: {e}") from e
        out, said = bytearray(), bytearray()
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.gather(
                    self._read(process, process.stdout, out),
                    self._read(process, process.stderr, said),
                    _write(process.stdin, script),
                )
                status = await process.wait()
        except TimeoutError as e:
            so_far = clean_text(said.decode(errors="replace"))
            raise SchedulerUnreachable(f"{asked}: no answer within {self._timeout:g} s. {so_far}") from e
        finally:
            await _end(process)
        if max(len(out), len(said)) > self._max_output:
            raise SchedulerError(f"{asked}: printed more than {self._max_output} bytes")
        err = said.decode(errors="replace").strip()
        if status:
            raise meaning(asked, err or f"exit status {status}")
        return out.decode(errors="replace"), err

    async def _read(
        self, process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None, into: bytearray
    ) -> None:
        """Reads to the end; a process that prints too much is killed, and the rest is dropped."""
        while stream is not None and (chunk := await stream.read(_CHUNK)):
            if len(into) <= self._max_output:
                into += chunk
            else:
                _kill(process)


async def _write(stream: asyncio.StreamWriter | None, text: str | None) -> None:
    if stream is None or text is None:
        return
    with contextlib.suppress(
        BrokenPipeError, ConnectionResetError
    ):  # its exit status says why it did not read
        stream.write(text.encode())
        await stream.drain()
    stream.close()


def _kill(process: asyncio.subprocess.Process) -> None:
    """Ends the process, and what it started, at once."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Leaves no process behind, not even when this task is cancelled."""
    if process.returncode is None:
        _kill(process)
        await process.communicate()  # wait() does not return before its output was read (Python 3.13)


class _Identity(NamedTuple):
    """Whose a process shall be; None: as its parent."""

    user: int | None = None
    group: int | None = None
    groups: Sequence[int] | None = None


def _identity(account: pwd.struct_passwd | None) -> _Identity:
    if account is None or account.pw_uid == os.geteuid():
        return _Identity()
    if os.geteuid() != 0:
        raise NotPermitted(f"only root may submit a job as {account.pw_name}")
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    return _Identity(account.pw_uid, account.pw_gid, groups)


def _asked(program: str, args: Sequence[str]) -> str:
    """The command, short enough for a message, and without the columns that were asked for."""
    told = (arg for arg in args if not arg.startswith(_COLUMNS))
    return clean_text(" ".join((Path(program).name, *told)), limit=120)
