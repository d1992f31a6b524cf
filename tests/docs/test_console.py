"""What is taken for a command of a page, and what is not."""

from pathlib import Path

import pytest

from tests.docs import console

PAGE = """# A page

```console
$ relight jobs            # a remark
JOB  RUN
# systemctl start x       # as root
$ relight show 4243 # exits with 5
$ relight approve JOB --reason "a # in quotes"
$ temporal signal \\
    --name approve
$ echo '{"a":
  1}' > b.json
```

```sh
$ not this
```

1. in a list

   ```yaml title="a/b.yaml"
   key: value
   ```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(console, "ROOT", tmp_path)
    file = tmp_path / "page.md"
    file.write_text(PAGE)
    return file


def test_commands(page: Path) -> None:
    found = console.commands(page)
    assert [(c.line, c.text, c.remark) for c in found] == [
        (4, "relight jobs", "a remark"),
        (6, "systemctl start x", "as root"),
        (7, "relight show 4243", "exits with 5"),
        (8, 'relight approve JOB --reason "a # in quotes"', ""),
        (9, "temporal signal --name approve", ""),
        (11, "echo '{\"a\":\n1}' > b.json", ""),
    ]


def test_files(page: Path) -> None:
    assert [(f.name, f.text) for f in console.files(page)] == [("a/b.yaml", "key: value\n")]
