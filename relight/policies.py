"""The policies in force: those of the settings and of the policy file, which is read again when it changes.

A file that cannot be used any more changes nothing: what was in force stays so, also through a restart of
the service that remembers it, and the trouble is told.
"""

import os
import stat
from pathlib import Path

from relight import permissions
from relight.config import ConfigError, Settings
from relight.files import write_whole
from relight.known_rules import new_rules
from relight.known_rules import remember as remember_rules
from relight.policy.file import PolicyFile, PolicyFileError, Problem, parse

MAX_BYTES = 1 << 20
IN_FORCE = "policy-in-force.yaml"
"""Under the state directory: the last policy file that could be used."""

Stamp = tuple[int, int, int, int]


class PolicyFileUnsafe(ConfigError):
    """Somebody else could have written the policy file."""


class Policies:
    """The policies in force.

    Args:
        settings: with the policies of the settings, and where the policy file is.
        remember: keep the last usable file under the state directory, and begin with it where the file
            itself cannot be used: for services, which must not be without a policy because of a typing error.

    Raises:
        ConfigError: the file cannot be used, and nothing is remembered.
        OSError: to remember is wanted, and the state directory cannot be written.
    """

    def __init__(self, settings: Settings, *, remember: bool = False) -> None:
        self._settings = settings
        self._path = settings.policy_file
        self._kept = settings.state_dir / IN_FORCE if remember else None
        if remember:
            remember_rules(settings.state_dir)
        self.new_rules = new_rules(settings.state_dir)
        """Rules that came with an upgrade."""
        self._stamp: Stamp | None = None
        self.problem = ""
        """Why the file as it is now is not in force; empty: it is, or there is none."""
        self.file = self._merged(PolicyFile())
        """What is in force."""
        if self._path is None:
            return
        self._stamp = _stamp(self._path)
        try:
            self._take(read_policy_file(self._path, settings))
        except ConfigError as e:
            if self._kept is None or not self._kept.is_file():
                raise
            self.file = self._merged(read_policy_file(self._kept, settings)[1])
            self.problem = str(e)

    def reload(self) -> bool:
        """Reads the file again if it has changed. True: what is in force, or the trouble, is another now.

        Raises nothing for a file that is gone or cannot be used: see `problem`.
        """
        if self._path is None or (stamp := _stamp(self._path)) == self._stamp:
            return False
        self._stamp = stamp
        before = self.file, self.problem
        try:
            self._take(read_policy_file(self._path, self._settings))
            self.problem = ""
        except ConfigError as e:
            self.problem = str(e)
        return (self.file, self.problem) != before

    def _merged(self, file: PolicyFile) -> PolicyFile:
        return merged(self._settings, file, self.new_rules)

    def _take(self, read: tuple[str, PolicyFile]) -> None:
        text, file = read
        self.file = self._merged(file)
        if self._kept is not None:
            _write(self._kept, text)


def merged(settings: Settings, file: PolicyFile, upgraded: tuple[str, ...] = ()) -> PolicyFile:
    """The policy file with what the settings add: their policies, and rules that are new.

    Args:
        settings: with policies and signatures of the site's own.
        file: what it says.
        upgraded: the rules that came with an upgrade.
    """
    added = (*site_rules(settings.signatures), *upgraded)
    new = (rule for rule in added if rule not in file.promote)
    observe = tuple(dict.fromkeys((*file.observe, *new)))
    return file.model_copy(update={"policies": {**settings.policies, **file.policies}, "observe": observe})


def site_rules(directories: tuple[Path, ...]) -> tuple[str, ...]:
    """The signatures and Xids (`xid-79`) that a site's directories add to the catalogue or change in it."""
    if not directories:
        return ()
    from relight.diagnosis.catalogue import Catalogue  # slow to import

    own, site = Catalogue.load(), Catalogue.load(directories)
    codes = (("xid", own.xid.xid, site.xid.xid), ("sxid", own.xid.sxid, site.xid.sxid))
    return (
        *(s.id for s in site if own.get(s.id) != s),
        *(f"{table}-{code}" for table, old, new in codes for code in new if old.get(code) != new[code]),
    )


def read_policy_file(path: Path, settings: Settings | None = None) -> tuple[str, PolicyFile]:
    """The text of the file, and what it says.

    Args:
        path: the file.
        settings: whose policies may be named in it and not defined again.

    Raises:
        PolicyFileUnsafe: somebody else than its owner may write it, or somebody strange owns it.
        ConfigError: it cannot be read, or says something that cannot be.
    """
    text = read_policy_text(path)
    try:
        return text, parse(text, str(path), tuple(settings.policies) if settings is not None else ())
    except PolicyFileError as e:
        raise ConfigError(f"the policy file cannot be used:\n{e}") from e


def why_unsafe(path: Path, found: os.stat_result | None = None) -> str:
    """Who else could change what the file says; empty if only root and this user can.

    Args:
        path: the file.
        found: what is known of it, where it is open.
    """
    return permissions.problem(path, found=found, called="the policy file")


def read_policy_text(path: Path, *, safe: bool = True) -> str:
    """The text of a policy file.

    Args:
        path: the file.
        safe: refuse a file that somebody else could have written.

    Raises:
        PolicyFileUnsafe: somebody else could have.
        ConfigError: it cannot be read, is no regular file, is too long, or no text.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe waits for somebody who writes into it.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:  # noqa: PTH123 - of a descriptor
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"the policy file {path} is no regular file")
            if safe and (why := why_unsafe(path, found)):
                raise PolicyFileUnsafe(f"the policy file is not safe: {why}")
            raw = opened.read(MAX_BYTES + 1)
    except OSError as e:
        raise ConfigError(f"the policy file {path} cannot be read: {e.strerror or e}") from e
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"the policy file {path} is longer than {MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ConfigError(f"the policy file {path} is not UTF-8: {e.reason} at byte {e.start}") from e


def _stamp(path: Path) -> Stamp | None:
    """Changes when the file does: a new one has another inode, and a rewritten one another time or length."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def _write(path: Path, text: str) -> None:
    """Writes it whole or not at all, for this user alone."""
    try:
        write_whole(path, text)
    except OSError as e:
        raise ConfigError(f"the policy in force cannot be kept as {path}: {e.strerror or e}") from e


__all__ = [
    "IN_FORCE", "Policies", "PolicyFileUnsafe", "Problem", "merged", "read_policy_file", "why_unsafe",
]  # fmt: skip
