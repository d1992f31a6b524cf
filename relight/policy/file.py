"""The policy file: named policies, who gets which, and what may act where. Pure: text in, a model out.

It is YAML. Everything is checked when it is read, and all that is wrong is told at once, each with its line.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from relight.contracts import CauseRule, MayAct, Mode, Policy
from relight.contracts.policy import CheckpointLayout
from relight.durations import parse_duration
from relight.policy.sense import conflicts
from relight.policy.written import Path, Problem, Written, dotted, read_yaml

DEFAULT = "default"
NEVER = "never"
BUILT_IN = {DEFAULT: Policy(), NEVER: Policy(name=NEVER, act=MayAct.NEVER)}
"""Policies that are always there and that every job may choose. `default` can be written anew."""
_ELSEWHERE = {"name": "it is the key", "observe_only": "write it under `observe` at the top of the file"}
_DURATION_SCHEMA = {
    "type": ["string", "number"],
    "pattern": r"^\d+(\.\d+)?((ms|s|m|h|d)(\d+(\.\d+)?(ms|s|m|h|d))*)?$",
    "description": "A duration: 250ms, 30s, 5m, 1h30m, 2d, or a number of seconds.",
}


class PolicyFileError(ValueError):
    """The policy file cannot be used; `problems` has all that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Override(_Part):
    """Where it differs: for jobs that match in all that is named. Later ones win over earlier ones."""

    partition: tuple[str, ...] = ()
    """Of these partitions; empty: of all."""
    user: tuple[str, ...] = ()
    """Of these users; empty: of all."""
    account: tuple[str, ...] = ()
    """Of these accounts; empty: of all."""
    policy: str = ""
    """The policy of jobs that ask for none; `never` holds also for those that ask for another."""
    mode: Mode | None = None
    """`observe`: these jobs only observe."""
    set: dict[str, Any] = Field(default={})
    """Settings of the policy that are otherwise for these jobs, whatever policy they chose."""

    def matches(self, partition: str, user: str, account: str) -> bool:
        """It is about such a job."""
        return all(
            not wanted or value in wanted
            for wanted, value in ((self.partition, partition), (self.user, user), (self.account, account))
        )

    def label(self) -> str:
        """Whom it is about, in words."""
        parts = (("partition", self.partition), ("user", self.user), ("account", self.account))
        return ", ".join(f"{name} {' or '.join(values)}" for name, values in parts if values)


class PolicyFile(_Part):
    """A policy file that was read."""

    mode: Mode = Mode.ACT
    """The most that any job may do; it can only lower what settings and people ask for."""
    act_in: tuple[str, ...] | None = None
    """Jobs act only in these partitions and observe in all others; None: it does not matter where."""
    allow: tuple[str, ...] | None = None
    """The policies that jobs may choose, beside `default` and `never`; None: all."""
    policies: dict[str, Policy] = Field(default={})
    """By name. What one does not say is as relight's default has it, not as the policy `default`."""
    overrides: tuple[Override, ...] = ()
    """Where it differs: by partition, user or account."""
    observe: tuple[str, ...] = Field(default=(), max_length=1000)
    """Detectors, signatures and Xids (`xid-79`, or the number) that only count: what they alone saw is
    shown, and a person is asked."""
    promote: tuple[str, ...] = ()
    """Rules that may act although they are new: the site's own signatures and Xids (setting `signatures`),
    and what an upgrade of relight brought."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all policies, the built-in ones too."""
        return tuple(sorted({*BUILT_IN, *self.policies}))

    @property
    def allowed(self) -> tuple[str, ...]:
        """The names that a job may choose."""
        if self.allow is None:
            return self.names
        return tuple(sorted({*BUILT_IN, *self.allow}))

    def policy(self, name: str) -> Policy:
        """The policy of this name, with the rules that only count.

        Raises:
            KeyError: there is none.
        """
        found = self.policies.get(name) or BUILT_IN[name]
        observe_only = tuple(dict.fromkeys((*found.observe_only, *self.observe)))
        return found.model_copy(update={"name": name, "observe_only": observe_only})


def apply(policy: Policy, values: Mapping[str, Any]) -> Policy:
    """The policy with these settings otherwise; rules for causes are merged, cause by cause."""
    changed = dict(values)
    if "causes" in changed:
        causes = dict(policy.causes)
        for cause, rule in changed["causes"].items():
            before = causes.get(cause, CauseRule())
            causes[cause] = before.model_copy(update=rule.model_dump(exclude_none=True))
        changed["causes"] = causes
    return policy.model_copy(update=changed)


def parse(text: str, file: str = "policy.yaml", taken: Sequence[str] = ()) -> PolicyFile:
    """Reads a policy file.

    Args:
        text: what it holds.
        file: its name, for messages.
        taken: names of policies that are defined elsewhere already.

    Raises:
        PolicyFileError: something is wrong with it.
    """
    written = read_yaml(text, file)
    data = written.data if written.data is not None else {}
    if not isinstance(data, dict):
        written.problem((), f"the file is a mapping of {_listed(PolicyFile)}")
        data = {}
    data = _known(PolicyFile, data, (), written)
    unsound: dict[str, Policy] = {}
    if "policies" in data:
        data["policies"], unsound = _policies(data["policies"], written, taken)
    places: tuple[int, ...] = ()
    if "overrides" in data:
        overrides = _overrides(data["overrides"], written)
        places, data["overrides"] = tuple(overrides), list(overrides.values())
    for key in ("act_in", "allow", "observe", "promote"):
        if key in data:
            data[key] = _texts(data[key])
    for key in ("observe", "promote"):
        if isinstance(data.get(key), list):
            data[key] = [f"xid-{rule}" if str(rule).isdecimal() else rule for rule in data[key]]
    found: PolicyFile | None = _validated(PolicyFile, data, (), written)
    # What is wrong in one place does not hide what contradicts itself in another.
    readable = found if found is not None else _what_can_be_read(data)
    _check(readable, unsound, written, taken, places)
    if found is None or written.problems:
        raise PolicyFileError(sorted(written.problems, key=lambda p: p.line))
    return found


def _what_can_be_read(data: Mapping[str, Any]) -> PolicyFile:
    """The file without those of its parts that cannot be read."""
    kept = {}
    for key, value in data.items():
        try:
            PolicyFile.model_validate({key: value})
        except ValidationError:
            continue  # told already
        kept[key] = value
    return PolicyFile.model_validate(kept)


def _check(
    found: PolicyFile,
    unsound: Mapping[str, Policy],
    written: Written,
    taken: Sequence[str],
    places: Sequence[int],
) -> None:
    """What only shows when all parts are looked at together.

    Args:
        found: what can be read of the file.
        unsound: policies of which something cannot be read, with relight's default in its place.
        written: takes the problems.
        taken: names of policies that are defined elsewhere.
        places: where in the file each override is, of those that can be read.
    """
    known = {*found.names, *unsound, *taken}
    for at, name in enumerate(found.allow or ()):
        if name not in known:
            written.problem(("allow", at), f"there is no policy {name!r}; known: {', '.join(sorted(known))}")
    if found.mode is Mode.OBSERVE and found.act_in:
        written.problem(("act_in",), "with mode: observe nothing acts, so that no partition can")
    for at, rule in enumerate(found.promote):
        if rule in found.observe:
            written.problem(("promote", at), f"{rule} is in `observe` too: it either counts or acts")
    for name, policy in {**found.policies, **unsound}.items():
        for where, why in conflicts(policy):
            written.problem(("policies", name, *where), why)
    for at, override in zip(places, found.overrides, strict=False):
        here: Path = ("overrides", at)
        if not (override.partition or override.user or override.account):
            written.problem(here, "it says for nobody: name a partition, user or account")
        if not (override.policy or override.mode or override.set):
            written.problem(here, "it changes nothing: say policy, mode or set")
        if override.policy and override.policy not in known:
            why = f"there is no policy {override.policy!r}; known: {', '.join(sorted(known))}"
            written.problem((*here, "policy"), why)
        if override.mode is Mode.ACT:
            why = "an override can only lower the mode; where jobs may act says `act_in`"
            written.problem((*here, "mode"), why)
        for where, why in _new_conflicts(found, override):
            written.problem((*here, "set", *where), why)


def _new_conflicts(found: PolicyFile, override: Override) -> Iterator[tuple[tuple[str, ...], str]]:
    """What an override makes impossible in a policy that was not so before."""
    told: set[tuple[str, ...]] = set()
    for name in found.names:
        if name == NEVER or not override.set:
            continue
        before = found.policy(name)
        for where, why in conflicts(apply(before, override.set)):
            if where not in told and (where, why) not in conflicts(before):
                told.add(where)
                yield where, f"with policy {name!r}: {why}"


def _policies(
    data: Any, written: Written, taken: Sequence[str]
) -> tuple[dict[str, Policy], dict[str, Policy]]:
    """Those that can be read, and those of which something cannot."""
    found: dict[str, Policy] = {}
    unsound: dict[str, Policy] = {}
    if not isinstance(data, dict):
        written.problem(("policies",), "policies are a mapping from names to settings")
        return found, unsound
    for name, values in data.items():
        here: Path = ("policies", name)
        if not str(name).strip():
            written.problem(here, "a policy needs a name")
        elif name == NEVER:
            written.problem(here, "the policy `never` is built in: it leaves a job alone")
        elif name in taken:
            written.problem(here, "the settings file has a policy of this name too: keep one of them")
        elif (policy := _read(Policy, {} if values is None else values, here, written)) is not None:
            found[name] = policy.model_copy(update={"name": name})
        else:
            unsound[name] = _in_part(values)
    return found, unsound


def _in_part(values: Any) -> Policy:
    """A policy without the settings that cannot be read; those are told already."""
    aside = Written("")
    read = _fields(Policy, values, (), aside) if isinstance(values, dict) else {}
    try:
        return Policy.model_validate(read)
    except ValidationError as e:
        wrong = {error["loc"][0] for error in e.errors(include_url=False) if error["loc"]}
        kept = {key: value for key, value in read.items() if key not in wrong}
    try:
        return Policy.model_validate(kept)
    except ValidationError:  # what the settings are together is refused by the model itself
        return Policy()


def _overrides(data: Any, written: Written) -> dict[int, Override]:
    """Those that can be read, by their places in the file."""
    found: dict[int, Override] = {}
    if not isinstance(data, list):
        written.problem(("overrides",), "overrides are a list")
        return found
    for at, values in enumerate(data):
        here: Path = ("overrides", at)
        if not isinstance(values, dict):
            written.problem(here, f"an override is a mapping of {_listed(Override)}")
            continue
        values = _known(Override, values, here, written)
        for key in ("partition", "user", "account"):
            if key in values:
                values[key] = _texts(values[key])
        if "set" in values:
            inside: Path = (*here, "set")
            policy = _read(Policy, values["set"], inside, written)
            given = values["set"] if policy is not None else {}
            values["set"] = {key: getattr(policy, key) for key in given if key in Policy.model_fields}
        override = _validated(Override, values, here, written)
        # One of which something cannot be read is not judged as a whole: it may be about nobody for that.
        if override is not None and not any(dotted(here) in known.key for known in written.problems):
            found[at] = override
    return found


def _read(model: type[Any], data: Any, path: Path, written: Written) -> Any:
    """A policy, or a part of one, as people write it; None if it cannot be read."""
    if not isinstance(data, dict):
        written.problem(path, f"it is a mapping of {_listed(model)}")
        return None
    return _validated(model, _fields(model, data, path, written), path, written)


def _fields(model: type[BaseModel], data: dict[str, Any], path: Path, written: Written) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for key, value in _known(model, data, path, written).items():
        here: Path = (*path, key)
        if _is_duration(model, key):
            try:
                value = parse_duration(value)
            except ValueError as e:
                written.problem(here, f"{value!r}: {e}")
                continue
        elif key == "causes" and isinstance(value, dict):
            value = {
                cause: _fields(CauseRule, rule, (*here, cause), written) if isinstance(rule, dict) else rule
                for cause, rule in value.items()
            }
        elif key == "checkpoint_layout" and isinstance(value, dict):
            value = _fields(CheckpointLayout, value, here, written)
        read[key] = value
    return read


def _known(model: type[BaseModel], data: dict[str, Any], path: Path, written: Written) -> dict[str, Any]:
    """Without the keys that are none, which are told."""
    elsewhere = _ELSEWHERE if model is Policy else {}
    known = {}
    for key, value in data.items():
        if key in elsewhere:
            written.problem((*path, key), f"not here: {elsewhere[key]}")
        elif key not in model.model_fields:
            written.problem((*path, key), f"there is no such key; known: {_listed(model)}")
        else:
            known[key] = value
    return known


def _validated(model: type[Any], data: Any, path: Path, written: Written) -> Any:
    try:
        return model.model_validate(data)
    except ValidationError as e:
        for error in e.errors(include_url=False):
            where: Path = tuple(part for part in error["loc"] if part != "[key]")
            message = str(error["msg"]).removeprefix("Value error, ")
            given = error["input"]
            if not isinstance(given, dict | list | tuple | BaseModel):
                message += f" (it is {given!r})"
            written.problem((*path, *where), message)
        return None


def _texts(value: Any) -> Any:
    """One text may stand for a list of it; numbers are names too."""
    if value is None:
        return value
    values = value if isinstance(value, list) else [value]
    return [str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]


def _is_duration(model: type[BaseModel], key: str) -> bool:
    annotation = model.model_fields[key].annotation
    return timedelta in (annotation, *get_args(annotation))


def _listed(model: type[BaseModel]) -> str:
    left_out = _ELSEWHERE if model is Policy else {}
    return ", ".join(sorted(set(model.model_fields) - set(left_out)))


def schema() -> dict[str, Any]:
    """The JSON schema of the file, for editors (draft 2020-12)."""
    found = PolicyFile.model_json_schema()
    definitions = found["$defs"]
    policy = definitions["Policy"]
    for key in _ELSEWHERE:
        policy["properties"].pop(key, None)
    definitions["Override"]["properties"]["set"] = {"$ref": "#/$defs/Policy"}
    for name in ("Policy", "CauseRule", "CheckpointLayout"):
        definitions[name]["additionalProperties"] = False
    for part in (definitions["Override"], found):
        for key in ("partition", "user", "account", "act_in", "allow", "observe", "promote"):
            if key in part["properties"]:
                part["properties"][key] = _one_or_more()
    definitions["Override"]["properties"]["mode"] = {"const": Mode.OBSERVE.value}
    plain: dict[str, Any] = _plain_schema(found)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "relight policy file",
        **{key: value for key, value in plain.items() if key != "title"},
    }


def _one_or_more() -> dict[str, Any]:
    one = {"type": ["string", "integer"]}
    return {"anyOf": [one, {"type": "array", "items": one}]}


def _plain_schema(part: Any) -> Any:
    """Durations as people write them, and no defaults in ISO 8601."""
    if isinstance(part, list):
        return [_plain_schema(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("format") == "duration":
        return dict(_DURATION_SCHEMA)
    return {
        key: _plain_schema(value)
        for key, value in part.items()
        if not (key == "default" and isinstance(value, str) and value.startswith("P"))
    }


__all__ = [
    "BUILT_IN", "DEFAULT", "NEVER", "Override", "PolicyFile", "PolicyFileError", "Problem", "apply",
    "dotted", "parse", "schema",
]  # fmt: skip
