"""Stages about this machine's settings and files."""

import os

from relight.audit.places import ArchiveError
from relight.cli.audit_sources import the_archive
from relight.cli.checkup.base import Bench, Broken, Well
from relight.cli.exit_codes import CommandError, ExitCode
from relight.config import ConfigError, find_config_file, unknown_variables
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.steplines import with_custom
from relight.policies import Policies
from relight.wording import counted


async def settings(bench: Bench) -> Well:
    """They can be read, and what they name is there."""
    try:
        bench.settings = bench.call.settings
        file = find_config_file(bench.call.config_file)
    except ConfigError as error:
        mend = "correct it; `relight config` shows all settings and where each comes from"
        raise Broken(str(error), mend, ExitCode.USAGE) from error
    for name, policy in bench.settings.policies.items():
        try:
            with_custom(policy.step_patterns)
        except ValueError as error:
            mend = f"correct step_patterns of policies.{name} in {file}"
            raise Broken(f"policy {name!r}: {error}", mend, ExitCode.USAGE) from error
    try:
        Policies(bench.settings)
    except ConfigError as error:
        mend = "`relight policy check FILE` names what is wrong; services keep to the last usable one"
        raise Broken(str(error), mend, ExitCode.USAGE) from error
    if problems := Catalogue.load(bench.settings.signatures).problems:
        mend = "correct it: `relight catalogue lint DIR` names every problem"
        raise Broken(f"signatures: {problems[0]}", mend, ExitCode.USAGE)
    unknown = unknown_variables()
    note = f"{', '.join(unknown)} of the environment name no setting" if unknown else ""
    return Well(f"from {file}" if file else "no file: the defaults and the environment", note)


async def state_directory(bench: Bench) -> Well:
    """Worker and sensor can write there."""
    path = bench.settings.state_dir
    above = next(place for place in (path, *path.parents) if place.exists())
    if not above.is_dir():
        raise Broken(f"state_dir {path}: {above} is no directory", "set state_dir to a directory")
    if not os.access(above, os.W_OK | os.X_OK):
        mend = (
            f"chown it to the worker's user, or set state_dir (this is {_me()}: run the doctor as that user)"
        )
        raise Broken(f"state_dir {path} cannot be written", mend)
    return Well(f"{path} can be written")


async def archive(bench: Bench) -> Well:
    """The archive can be written and is whole, if the settings name one."""
    if not (url := bench.settings.archive.url):
        return Well("none (setting archive.url): Temporal's retention is the end of the audit trail")
    try:
        kept = the_archive(bench.settings)
        checked = kept.check()
        kept.try_out()
    except (CommandError, ArchiveError, OSError) as error:
        mend = f"correct archive.url, or give the worker's user access to it (this is {_me()})"
        raise Broken(f"archive {url}: {error}", mend) from error
    if broken := [one for one in checked if one.problem is not None]:
        mend = "see `relight audit check-archive`; workers add nothing behind a broken end"
        raise Broken(f"archive {url}: {broken[0].problem}", mend)
    count = sum(one.head.count for one in checked)
    return Well(f"{counted(count, 'record', 'records')} in {url}, which can be written")


def _me() -> str:
    return f"user id {os.geteuid()}"
