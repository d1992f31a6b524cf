"""Before a service acts: nobody else may be able to change its settings, or to read its secrets."""

import os
from pathlib import Path

from relight.cli.invocation import Invocation
from relight.cli.output import complain
from relight.config import ENV_PREFIX, find_config_file
from relight.permissions import problems, require_safe


def check_files(call: Invocation, *, acts: bool) -> None:
    """Looks at the settings file, the site's signatures and the key file of this invocation.

    Args:
        call: where the settings come from.
        acts: the service changes something on the cluster; one that only reads and reports is warned.

    Raises:
        UnsafePermissions: others could change what an acting service does, or read a secret.
    """
    open_files, secrets = _files(call)
    require_safe([] if not acts else open_files, secrets)
    for why in problems(open_files):
        complain(f"{why} (a service that acts refuses this)", "warning")


def _files(call: Invocation) -> tuple[list[Path], list[Path]]:
    """What nobody else may write, and what nobody else may read."""
    settings = call.settings
    open_files: list[Path] = list(settings.signatures)
    secrets: list[Path] = []
    file = find_config_file(call.config_file)
    if file is not None:
        url_in_file = settings.notify.url.get_secret_value() and f"{ENV_PREFIX}NOTIFY__URL" not in os.environ
        (secrets if url_in_file else open_files).append(file)
    if settings.encryption.key_file is not None:
        secrets.append(settings.encryption.key_file)
    return open_files, secrets
