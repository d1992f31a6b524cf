"""The Dockerfile without a container engine: what it copies is there, and is the whole of relight."""

import fnmatch
import re
import tomllib
from typing import Any

from tests.deploy.stack import ROOT, stack

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
STAGES = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]


def copied() -> list[str]:
    """What is copied from the working tree."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    words = [[word for word in line.split() if not word.startswith("--")] for line in lines]
    return [source for sources in words for source in sources[:-1]]


def test_what_it_copies_is_there() -> None:
    assert len(copied()) >= 9
    assert [source for source in copied() if not (ROOT / source).exists()] == []


def test_it_copies_every_package_and_what_the_build_needs() -> None:
    needed = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    needed |= {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert needed <= set(copied())


def test_the_context_has_what_is_copied_and_no_more() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    let_in = [line[1:] for line in lines if line.startswith("!")]
    for source in copied():
        assert any(source == kept or source.startswith(f"{kept}/") for kept in let_in), source
    assert [kept for kept in let_in if not any(fnmatch.fnmatch(s, f"{kept}*") for s in copied())] == []


def test_the_extras_exist() -> None:
    (extras,) = re.findall(r"pip install [^&]*\"\.\[([\w,]+)\]\"", DOCKERFILE)
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    uninstalled = re.findall(r"pip uninstall --yes ([\w-]+)", DOCKERFILE)
    assert set(uninstalled) <= {re.split(r"[>=;\[]", d)[0] for d in PROJECT["project"]["dependencies"]}


def test_the_python_is_one_that_is_supported() -> None:
    (version,) = re.findall(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


def test_the_last_stage_is_small_and_without_rights() -> None:
    last = STAGES[-1]
    (packages,) = re.findall(r"apt-get install --yes --no-install-recommends ([^&]+)&&", last)
    assert set(packages.split()) == {"slurm-client", "munge"}
    assert "pip install" not in last
    assert "rm -rf /var/lib/apt/lists/* /etc/munge/munge.key" in last, "no key of the image's own"
    users = re.findall(r"^USER (\S+)$", last, re.MULTILINE)
    assert users == ["${UID}:${GID}"]
    assert last.index("USER") < last.index("ENTRYPOINT")
    assert "org.opencontainers.image.licenses" in last


def test_compose_builds_with_arguments_that_it_has() -> None:
    known = set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE))
    builds = [service["build"] for service in stack()["services"].values() if "build" in service]
    assert len(builds) == 4
    for build in builds:
        assert set(build["args"]) <= known
        assert (ROOT / "deploy" / "compose" / build["context"]).resolve() == ROOT
