"""Settings: precedence, origins, durations, and what is said of mistakes."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.config import (
    TOKEN_VARIABLE,
    ConfigError,
    Settings,
    effective,
    find_config_file,
    format_duration,
    load_settings,
    parse_duration,
    unknown_variables,
)
from relight.contracts import Mode, Policy
from relight.policies import merged
from relight.policy.file import PolicyFile


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in os.environ:
        if name.startswith("RELIGHT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("in_file", "in_env", "as_flag", "cluster", "origin"),
    [
        (None, None, None, "", "default"),
        ("file", None, None, "file", "file"),
        ("file", "env", None, "env", "environment RELIGHT_CLUSTER"),
        ("file", "env", "flag", "flag", "flag"),
        ("file", None, "flag", "flag", "flag"),
        (None, "env", None, "env", "environment RELIGHT_CLUSTER"),
    ],
)
def test_flags_beat_the_environment_which_beats_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_file: str | None,
    in_env: str | None,
    as_flag: str | None,
    cluster: str,
    origin: str,
) -> None:
    file = written(tmp_path, f'cluster = "{in_file}"\n' if in_file else "")
    if in_env:
        monkeypatch.setenv("RELIGHT_CLUSTER", in_env)
    settings = load_settings(file, cluster=as_flag)
    assert settings.cluster == cluster
    [found] = [one for one in effective(settings, file, cluster=as_flag) if one.key == "cluster"]
    assert found.value == cluster
    assert found.origin == (f"file {file}" if origin == "file" else origin)


def test_sections_merge_key_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, '[sensor]\nlog_poll = "1s"\nscheduler_poll = "5m"\n')
    monkeypatch.setenv("RELIGHT_SENSOR__LOG_POLL", "750ms")
    settings = load_settings(file)
    assert settings.sensor.log_poll == timedelta(milliseconds=750)
    assert settings.sensor.scheduler_poll == timedelta(minutes=5)
    origins = {one.key: one.origin for one in effective(settings, file)}
    assert origins["sensor.log_poll"] == "environment RELIGHT_SENSOR__LOG_POLL"
    assert origins["sensor.scheduler_poll"] == f"file {file}"
    assert origins["sensor.registry_poll"] == "default"


def test_policies_are_read_and_named(tmp_path: Path) -> None:
    file = written(tmp_path, '[policies.careful]\nsettle = "1m30s"\nretries_general = 0\npoll = 7\n')
    policies = merged(load_settings(file), PolicyFile())
    policy = policies.policy("careful")
    assert policy == Policy(
        name="careful", settle=timedelta(seconds=90), retries_general=0, poll=timedelta(seconds=7)
    )
    assert policies.policy("default") == Policy()
    assert policies.names == ("careful", "default", "never")


def test_the_built_in_policy_cannot_be_defined(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the policy 'never' is built in"):
        load_settings(written(tmp_path, '[policies.never]\nact = "automatic"\n'))


def test_the_default_policy_can_be_changed(tmp_path: Path) -> None:
    file = written(tmp_path, '[policies.default]\nhang_floor = "10m"\n')
    assert load_settings(file).policies["default"].hang_floor == timedelta(minutes=10)


def test_effective_settings_can_be_written_into_a_file_again(tmp_path: Path) -> None:
    file = written(tmp_path, '[policies.test]\nsettle = "1s"\n[local]\nnodes = 7\n')
    settings = load_settings(file)
    lines = []
    for one in effective(settings, file):
        if one.value is None:
            continue
        lines.append(f"{one.key} = {json.dumps(one.value)}")
    assert load_settings(written(tmp_path, "\n".join(lines))) == settings


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = [", "not valid TOML"),
        ("speed = 1", "setting speed .*no such setting; known: archive, cluster"),
        ("[sensor]\nlogpoll = 1", r"setting sensor\.logpoll .*known: log_poll"),
        ('mode = "go"', "setting mode .*'observe' or 'act'.*'go'"),
        ('scheduler = "pbs"', "setting scheduler .*'auto', 'slurm-cli', 'slurm-pyslurm' or 'local'"),
        ('cluster = "a b"', "setting cluster .*'a b'"),
        ("[local]\nnodes = 0", r"setting local\.nodes .*greater than or equal to 1"),
        ("[guard_limits]\nnodes = 1", r"setting guard_limits\.nodes .*known: breaker_cool_down"),
        ("[guard_limits]\nbreaker_nodes = 0", r"guard_limits\.breaker_nodes .*greater than or equal to 1"),
        ('[guard_limits]\nlease = "soon"', r"guard_limits\.lease .*30s, 5m"),
        ('guard = "perhaps"', "setting guard "),
        ('[sensor]\nlog_poll = "soon"', r"sensor\.log_poll .*30s, 5m"),
        ("[sensor]\nlog_poll = 0", r"sensor\.log_poll .*greater than"),
        ("[sensor]\nlog_poll = -1", r"sensor\.log_poll .*negative"),
        ("[policies.a]\nstep_patterns = ['step']", "needs a group"),
        ("[policies.a]\nstep_patterns = ['(']", "no regular expression"),
        ("[policies.a]\nsettel = 1", "policy 'a' has no setting 'settel'; it may set: act, "),
        ('[policies.a]\nsettle = "x"', "settle = 'x' of policy 'a': not a duration"),
        (
            '[policies.a]\nsteer = "push"',
            r"policies\.a\.steer .*'leave', 'pointer', 'move_aside' or 'environment'",
        ),
        ('[policies.a]\nresume_variable = "LD_PRELOAD"', "LD_PRELOAD already decides what a job runs"),
        ('[policies.a]\nresume_variable = "a b"', "'a b' is no name of an environment variable"),
        ('[policies.a]\non_divergence = "x"', r"on_divergence .*'accept', 'report' or 'hold'"),
        ("[policies.a]\nhang_factor = 0.5", r"policies\.a\.hang_factor .*greater than 1"),
    ],
)
def test_mistakes_name_the_setting_the_file_and_what_is_allowed(tmp_path: Path, text: str, says: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError, match=says) as error:
        load_settings(file)
    assert str(file) in str(error.value)


def test_a_mistake_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_MODE", "go")
    with pytest.raises(ConfigError, match="environment RELIGHT_MODE"):
        load_settings()


def test_the_file_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_config_file() is None
    users = tmp_path / "config" / "relight" / "relight.toml"
    users.parent.mkdir(parents=True)
    users.write_text("")
    assert find_config_file() == users
    here = tmp_path / "relight.toml"
    here.write_text("")
    assert find_config_file() == here
    named = written(tmp_path, "")
    monkeypatch.setenv("RELIGHT_CONFIG", str(named))
    assert find_config_file() == named
    flagged = tmp_path / "flagged.toml"
    flagged.write_text("")
    assert find_config_file(flagged) == flagged


def test_a_named_file_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="named by --config"):
        load_settings(tmp_path / "gone.toml")
    monkeypatch.setenv("RELIGHT_CONFIG", str(tmp_path / "gone.toml"))
    with pytest.raises(ConfigError, match="named by RELIGHT_CONFIG"):
        load_settings()


def test_variables_that_name_no_setting_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "RELIGHT_CONFIG", "RELIGHT_MODE", "RELIGHT_SENSOR__LOG_POLL", "RELIGHT_POLICIES__TEST__SETTLE",
        "RELIGHT_MODUS", "RELIGHT_SENSOR__LOGPOLL",
    ):  # fmt: skip
        monkeypatch.setenv(name, "1")
    assert unknown_variables() == ("RELIGHT_MODUS", "RELIGHT_SENSOR__LOGPOLL")


def test_the_token_is_no_setting_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "sesame")
    assert unknown_variables() == ()
    assert "sesame" not in repr(effective(load_settings()))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("1.5s", 1.5),
        ("5m", 300),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1h 5m", 3900),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_durations_as_people_write_them(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-3s", "m5", "1e3"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="30s"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_durations_survive_being_written(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(value)) == value


def test_relative_and_home_directories_become_absolute(tmp_path: Path) -> None:
    assert Settings(state_dir=Path("~/x")).state_dir == tmp_path / "x"
    assert Settings(state_dir=Path("y")).state_dir == tmp_path / "y"
    assert load_settings(mode="act").mode is Mode.ACT


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), "99999999999d", "1" + "0" * 400, 1e300, "36501d"]
)
def test_a_duration_beyond_all_bounds_is_refused_and_never_overflows(value: object) -> None:
    with pytest.raises(ValueError, match=r"longest is 36500d|not a duration"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("variable", "value", "key", "read"),
    [
        ("RELIGHT_SIGNATURES", "/a, /b", "signatures", ["/a", "/b"]),
        ("RELIGHT_SIGNATURES", '["/a", "/b"]', "signatures", ["/a", "/b"]),
        ("RELIGHT_PROMETHEUS__NODE_LABELS", "host,node", "prometheus.node_labels", ["host", "node"]),
        ("RELIGHT_DRAIN__CHECK", "/bin/check,{node}", "drain.check", ["/bin/check", "{node}"]),
        ("RELIGHT_NOTIFY__EVENTS", "ended", "notify.events", ["ended"]),
    ],
)
def test_lists_in_variables(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, key: str, read: list[str]
) -> None:
    monkeypatch.setenv(variable, value)
    found = {setting.key: setting for setting in effective(load_settings())}[key]
    assert (found.value, found.origin) == (read, f"environment {variable}")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RELIGHT_PROMETHEUS__QUERIES", "ecc=x"),
        ("RELIGHT_SIGNATURES", "[/a]"),
        ("RELIGHT_POLICIES", "patient"),
    ],
)
def test_what_must_be_json_says_so(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable} is not JSON .*write for example"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('cluster = ".."', "setting cluster"),
        ('cluster = "-x"', "setting cluster"),
        ('[worker]\nmetrics_address = "9400"', "write host:port"),
        ('[sensor]\nmetrics_address = "localhost:99999"', "write host:port"),
        ('[node]\nmetrics_address = "http://localhost:9400"', "write host:port"),
        ('[drain]\nrepair = ["/bin/mend"]', "without a check it would never run"),
        ("[drain]\nrelease = true", "release needs a check"),
        ('[drain]\ncheck = [""]', "the program, and it is empty"),
        ('[drain]\ncheck = ["/bin/{node}"]', "cannot depend on the node"),
        ('[drain]\ncheck = ["/bin/check", "{host}"]', "{host} would stay as it is"),
        ('[prometheus.queries]\nutilization = "x"', "there is no query 'utilization'; known: age"),
        ('[prometheus.queries]\necc = " "', "ecc is empty"),
        ('[prometheus.queries]\necc = "x[$windows]"', "a query names $windows"),
        ('[prometheus.queries]\necc = "x{a=~\\"b$\\"}"', "write $$"),
        ('[policies.""]', "a policy needs a name"),
        ("[policies.x]\nhang_factor = inf", "finite"),
    ],
)
def test_values_that_cannot_work_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_settings(written(tmp_path, text))
    assert says in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        'cluster = "alps-2.east"',
        '[worker]\nmetrics_address = "[::1]:9400"',
        '[worker]\nmetrics_address = ":9400"',
        '[worker]\nmetrics_address = "0.0.0.0:9400"',
        '[drain]\nrepair = ["/bin/mend", "--why={cause}"]\ncheck = ["/bin/check", "{node}"]\nrelease = true',
        '[drain]\ncheck = ["awk", "{print $1}"]',
        '[prometheus.queries]\necc = "x$match[$window] > 0 and y{a=~\\"b$$\\"}"',
    ],
)
def test_values_that_work_are_taken(tmp_path: Path, text: str) -> None:
    load_settings(written(tmp_path, text))
