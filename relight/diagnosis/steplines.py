"""Step lines: how training frameworks say how far they have come.

Each format has a trigger (for the multi-pattern scan: short, fires once a line) and a pattern with named
groups. The first format that matches a line wins, so the specific ones come first.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from relight.diagnosis.engine import why_not

_NUM = r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf|Infinity)"

STEP_WORD = r"[Ss]tep[ =:]"
"""The trigger of most formats. It ends right before the number: what follows tells if the step is new."""


@dataclass(frozen=True)
class StepFormat:
    """One way to print a step."""

    name: str
    triggers: tuple[str, ...]
    """For Hyperscan: short expressions, one of which every such line contains."""
    pattern: re.Pattern[str]
    fields: tuple[tuple[str, re.Pattern[str], float], ...] = ()
    """Field name, where to find it in the line, and the factor to seconds (or 1)."""
    always_loss: bool = False
    """Every line of this format has a loss, unless it is not a number."""
    loose: bool = False
    """Other lines look like this too: those that speak of validation are none."""


@dataclass(frozen=True)
class Step:
    """What a step line says."""

    format: str
    step: int
    total: int | None = None
    loss: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    step_seconds: float | None = None
    data_seconds: float | None = None
    throughput: float | None = None
    skipped: int | None = None
    no_loss: bool = False
    token: str = ""
    """What the same step looks like in the line of another rank; empty if that cannot be told."""


def _f(name: str, pattern: str, factor: float = 1.0) -> tuple[str, re.Pattern[str], float]:
    return name, re.compile(pattern.replace("NUM", f"(?P<v>{_NUM})")), factor


def _format(
    name: str,
    trigger: str | tuple[str, ...],
    pattern: str,
    *fields: tuple[str, re.Pattern[str], float],
    always_loss: bool = False,
    loose: bool = False,
) -> StepFormat:
    triggers = (trigger,) if isinstance(trigger, str) else trigger
    return StepFormat(name, triggers, re.compile(pattern), fields, always_loss, loose)


_LOSS = _f(
    "loss",
    r"(?i)(?<![\w-])['\"]?(?:train[_/ ]?|total_|avr_|lm[_ ])?loss['\"]?\s*(?:\(curr\))?\s*[:=]?\s*['\"]?NUM",
)
_GRAD = _f("grad_norm", r"(?i)['\"]?(?:grad[_ ]?norm|gnorm)['\"]?\s*[:=]?\s*['\"]?NUM")

FORMATS: tuple[StepFormat, ...] = (
    _format(
        "megatron",
        r"iteration +\d+/ *\d+ \|",
        r"iteration +(?P<step>\d+)/ *(?P<total>\d+) \|(?=.*elapsed time per iteration)",
        _f("throughput", r"samples(?: per second:|/sec:) *NUM"),
        _f("throughput", r"throughput per GPU \(TFLOP/s/GPU\): *NUM"),
        _f("throughput", r"elapsed time per iteration \(ms\): *NUM"),
        _f("step_seconds", r"elapsed time per iteration \(ms\): *NUM", 1e-3),
        _f("loss", r"lm[ _]loss: *NUM"),
        _f("loss", r"\| *[\w ]*loss: *NUM"),
        _f("grad_norm", r"grad norm: *NUM"),
        _f("loss_scale", r"loss scale: *NUM"),
        _f("skipped", r"number of skipped iterations: *NUM"),
        _f("nan", r"number of nan iterations: *NUM"),
        always_loss=True,
    ),
    _format(
        "gpt-neox",
        r"steps: \d+ loss: ",
        r"\bsteps: (?P<step>\d+) loss: ",
        _f("throughput", r"samples/sec: NUM"),
        _f("step_seconds", r"iter time \(s\): NUM"),
        _f("loss", r" loss: NUM"),
        always_loss=True,
    ),
    _format(
        "deepspeed",
        STEP_WORD,
        r"\bstep=(?P<step>\d+), skipped=(?P<skipped_total>\d+)",
    ),
    _format(
        "torchtitan",
        STEP_WORD,
        r"INFO - step: +(?P<step>[\d,]+)  +",
        _f("loss", r"loss: +NUM"),
        _f("grad_norm", r"grad_norm: +NUM"),
        _f("throughput", r"tps: +NUM"),
        _f("data_seconds", r"data_loading\(s\): +NUM"),
        always_loss=True,
    ),
    _format(
        "ms-swift",
        r"global_step/max_steps",
        r"['\"]global_step/max_steps['\"]: ['\"](?P<step>\d+)/(?P<total>\d+)['\"]",
        _f("loss", r"['\"]loss['\"]: ['\"]?NUM"),
        _f("grad_norm", r"['\"]grad_norm['\"]: ['\"]?NUM"),
        _f("throughput", r"train_speed\(iter/s\)['\"]: ['\"]?NUM"),
    ),
    _format(
        "maxtext",
        STEP_WORD,
        r"completed step: (?P<step>\d+), seconds: ",
        _f("step_seconds", r"seconds: NUM"),
        _f("throughput", r"Tokens/s/device: NUM"),
        _f("loss", r"loss: NUM"),
    ),
    _format(
        "composer",
        r"\[batch=\d",
        r"\[batch=(?P<step>\d+)/(?P<total>\d+)\]",
        _f("loss", r"loss/train/total: NUM"),
        _f("grad_norm", r"l2_norm/grad/global: NUM"),
        _f("throughput", r"tokens_per_sec: NUM"),
    ),
    _format(
        "olmo",
        STEP_WORD,
        r"\[step=(?P<step>\d+)(?:/(?P<total>\d+))?(?:,epoch=\d+(?:/\d+)?)?\]",
        _f("loss", r"CrossEntropyLoss=NUM"),
        _f("throughput", r"tokens_per_second=NUM"),
    ),
    _format(
        "fairseq-json",
        r'"num_updates": "',
        r'"num_updates": "(?P<step>\d+)"',
        _f("loss", r'"(?:train_)?loss": "NUM'),
        _f("throughput", r'"wps": "NUM'),
        _f("grad_norm", r'"gnorm": "NUM'),
        _f("loss_scale", r'"loss_scale": "NUM'),
    ),
    _format(
        "fairseq",
        r"\bnum_updates[= ]\d",
        r"\bnum_updates[= ](?P<step>\d+)",
        _f("loss", r"(?<![a-z_])loss[= ]NUM"),
        _f("throughput", r"\bwps=NUM"),
        _f("grad_norm", r"gnorm=NUM"),
        _f("loss_scale", r"loss_scale=NUM"),
    ),
    _format(
        "litgpt",
        STEP_WORD,
        r"\biter \d+ \| step (?P<step>\d+)\b",
        _f("loss", r"loss train \(curr\): NUM"),
        _f("loss", r"loss train: NUM"),
        _f("throughput", r"iter time: NUM ms"),
        _f("step_seconds", r"iter time: NUM ms", 1e-3),
    ),
    _format(
        "detectron2",
        r"\biter: \d+  ",
        r"\biter: (?P<step>\d+)  +",
        _f("loss", r"total_loss: NUM"),
        _f("throughput", r" time: NUM"),
        _f("step_seconds", r" time: NUM"),
        _f("data_seconds", r"data_time: NUM"),
    ),
    _format(
        "yolox",
        r"epoch: \d+/\d+, iter: ",
        r"epoch: (?P<epoch>\d+)/\d+, iter: (?P<micro>\d+)/(?P<per_epoch>\d+)",
        _f("loss", r"total_loss: NUM"),
        _f("step_seconds", r"iter_time: NUM"),
        _f("data_seconds", r"data_time: NUM"),
        _f("throughput", r"iter_time: NUM"),
    ),
    _format(
        "mmengine",
        r"Epoch\(train\) +\[",
        r"Epoch\(train\) +\[(?P<epoch>\d+)\]\[ *(?P<micro>\d+)/(?P<per_epoch>\d+)\]",
        _f("loss", r"(?<![\w_])loss: NUM"),
        _f("step_seconds", r"(?<![\w_])time: NUM"),
        _f("data_seconds", r"data_time: NUM"),
        _f("throughput", r"(?<![\w_])time: NUM"),
    ),
    _format(
        "mmengine-iter",
        r"Iter\(train\) +\[",
        r"Iter\(train\) +\[ *(?P<step>\d+)/(?P<total>\d+)\]",
        _f("loss", r"(?<![\w_])loss: NUM"),
        _f("step_seconds", r"(?<![\w_])time: NUM"),
        _f("data_seconds", r"data_time: NUM"),
        _f("throughput", r"(?<![\w_])time: NUM"),
    ),
    _format(
        "returnn",
        STEP_WORD,
        r"\bep (?P<epoch>\d+) train, step (?P<step>\d+), ",
        _f("loss", r"\bce(?:_\d+)? NUM"),
        _f("step_seconds", r"NUM sec/step"),
        _f("throughput", r"NUM sec/step"),
    ),
    _format(
        "prismatic",
        STEP_WORD,
        r"\bGlobal Step (?P<step>\d+)",
        _f("loss", r"Loss :: NUM"),
        _f("throughput", r"NUM(?:s/it|it/s)"),
        _f("step_seconds", r"NUM ?s/it"),
    ),
    _format(
        "nemo",
        STEP_WORD,
        r"\bglobal_step[:=] ?(?P<step>\d+)",
        _f("loss", r"(?:train|reduced_train)_loss[:=] ?NUM"),
        _f("step_seconds", r"train_step_timing in s[:=] ?NUM"),
        _f("throughput", r"train_step_timing in s[:=] ?NUM"),
    ),
    _format(
        "part-batch",
        r"\| Batch \d+ \| Loss: ",
        r"Epoch (?P<epoch>\d+) \| Batch (?P<micro>\d+) \| Loss: ",
        _f("loss", r"Loss: NUM"),
        _f("step_seconds", r"Time: NUM"),
        _f("throughput", r"Time: NUM"),
    ),
    _format(
        "tqdm",
        r"\d%\|",
        r"\d%\|[^|]*\| *(?P<step>\d+)/(?P<total>\d+) \[",
        _f("throughput", r"NUM ?(?:s/it|it/s)"),
        _f("step_seconds", r"NUM ?s/it"),
        _LOSS,
    ),
    _format(
        "trainer-dict",
        r"\{'loss': ",
        r"\{'loss': (?P<took>\S)",
        _f("loss", r"'loss': '?NUM"),
        _f("grad_norm", r"'grad_norm': '?NUM"),
    ),
    _format(
        "train-loss",
        (STEP_WORD, r"^[Ii]ter(?:ation)?\b[ :=]+\d"),
        r"^(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+\]?[:,]? )?(?:global[_ ]step|[Ss]tep|[Ii]ter|[Ii]teration)\b"
        r" ?[:=]? ?"
        r"(?P<step>\d+)(?: ?/ ?(?P<total>\d+))?(?![\d:.]\d|\d)(?P<rest>.*)",
        _f("throughput", r"NUM ?(?:tokens?/s|tok/s|samples/s|it/s|s/it)"),
        _f("step_seconds", r"NUM ?s/it"),
        _f("step_seconds", r"time:? NUM ?ms", 1e-3),
        _f("step_seconds", r"\bdt:? NUM ?ms", 1e-3),
        _f("data_seconds", r"data(?:_time|_wait)?[:=] ?NUM ?s"),
        _LOSS,
        _GRAD,
        loose=True,
    ),
    _format(
        "iteration-took",
        r"[Ii]teration took \d",
        r"[Ii]teration took (?P<took>\d)",
        _f("step_seconds", r"[Ii]teration took NUM ?s"),
        _f("throughput", r"[Ii]teration took NUM ?s"),
    ),
    _format(
        "step-anywhere",
        STEP_WORD,
        r"\b(?:global_)?[Ss]tep ?[=:]? ?(?P<step>\d+)(?: ?/ ?(?P<total>\d+))?\b.{0,40}?[Ll]oss",
        _f("throughput", r"(?:tokens_per_second=|tps:? )NUM"),
        _f("step_seconds", r"NUM ?s/it"),
        _LOSS,
        _GRAD,
        loose=True,
    ),
)

DETAILS: tuple[tuple[str, str, re.Pattern[str], float], ...] = (
    (
        "throughput",
        r"tokens_per_sec(?:ond)?[:=]",
        re.compile(rf"tokens_per_sec(?:ond)?[:=] ?(?P<v>{_NUM})"),
        1.0,
    ),
    ("data_seconds", r"batch_input: \d", re.compile(rf"time \(ms\).*batch_input: (?P<v>{_NUM})"), 1e-3),
    ("data_seconds", r"batch-generator", re.compile(rf"batch-generator[ .]*: \((?P<v>{_NUM})"), 1e-3),
)
"""Lines that say more about the step before them: field, trigger, pattern, factor."""

_PLAIN_NUMBER = re.compile(_NUM)

UNCOUNTED = -1
"""The step of a format that says that a step was made, and not which."""


def custom(pattern: str) -> StepFormat:
    """A format that a job or site teaches: a regular expression with the group `step`.

    The groups `total`, `loss`, `seconds` and `throughput` are used where they are there.

    Raises:
        ValueError: it has no group `step`, does not compile, or is not supported by the engine.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as e:
        raise ValueError(f"the pattern does not compile: {e}") from e
    if "step" not in compiled.groupindex:
        raise ValueError("the pattern needs a group (?P<step>\\d+)")
    if reason := why_not(pattern):
        raise ValueError(f"the pattern cannot be used: {reason}")
    return StepFormat("custom", (pattern,), compiled)


def with_custom(patterns: Sequence[str]) -> tuple[StepFormat, ...]:
    """The built-in formats, and before them those of a policy.

    Raises:
        ValueError: a pattern cannot be used; the message names it.
    """
    formats = []
    for pattern in patterns:
        try:
            formats.append(custom(pattern))
        except ValueError as e:
            raise ValueError(f"step pattern {pattern!r}: {e}") from e
    return (*formats, *FORMATS)


_PACE_OR_LOSS = re.compile(r"(?i)loss|s/it|it/s|tok|time|grad|lr\b|acc|^\s*$")
"""What makes a bare `step N ...` a step line."""
_OTHER_LOSS = re.compile(r"(?i)\b(?:val|valid|validation|eval|evaluation|test)\b[ _]?(?:loss|step)\b")
_TRAIN_LOSS = re.compile(r"(?i)train[ _]?loss|\| *loss")


def parse(text: str, formats: tuple[StepFormat, ...] = FORMATS) -> Step | None:
    """The step that a line (without its prefixes) says, or None."""
    for form in formats:
        m = form.pattern.search(text)
        if m is None:
            continue
        step = _step_of(m)
        if step is None:
            continue
        values: dict[str, float] = {}
        for name, pattern, factor in form.fields:
            if name in values:
                continue
            if (v := pattern.search(text)) is not None:
                values[name] = float(v["v"].replace(",", "")) * factor
        groups = m.groupdict()
        for name, group in (("loss", "loss"), ("step_seconds", "seconds"), ("throughput", "throughput")):
            if groups.get(group) and _PLAIN_NUMBER.fullmatch(groups[group]):
                values[name] = float(groups[group].replace(",", ""))
        rest = groups.get("rest")
        if rest is not None and not _PACE_OR_LOSS.search(rest):
            continue
        if form.loose and _OTHER_LOSS.search(text) and not _TRAIN_LOSS.search(text):
            continue
        bad_loss = "loss" in values and not math.isfinite(values["loss"])
        skipped = values.get("skipped")
        return Step(
            format=form.name,
            step=step,
            total=int(groups["total"]) if groups.get("total") else None,
            loss=values.get("loss"),
            grad_norm=values.get("grad_norm"),
            loss_scale=values.get("loss_scale"),
            step_seconds=values.get("step_seconds"),
            data_seconds=values.get("data_seconds"),
            throughput=values.get("throughput"),
            skipped=int(skipped) if skipped is not None else None,
            token=_token(m, text),
            no_loss=bad_loss or (form.always_loss and "loss" not in values) or values.get("nan", 0) > 0,
        )
    return None


def _token(m: re.Match[str], text: str) -> str:
    """The match up to the character after the number, if there is one that ends it."""
    end = m.end("step") if m.groupdict().get("step") else m.end("micro") if m.groupdict().get("micro") else -1
    after = text[end : end + 2] if end >= 0 else ""
    if not after or after[0].isdigit() or (after[0] in ",." and after[1:].isdigit()):
        return ""
    return text[m.start() : end + 1]


def detail(text: str) -> dict[str, float]:
    """What a line says of the step before it; empty for most."""
    found: dict[str, float] = {}
    for name, _, pattern, factor in DETAILS:
        if (m := pattern.search(text)) is not None:
            found[name] = float(m["v"].replace(",", "")) * factor
    return found


def _step_of(m: re.Match[str]) -> int | None:
    groups = m.groupdict()
    if groups.get("took"):
        return UNCOUNTED
    if groups.get("step"):
        digits = groups["step"].replace(",", "")
        return int(digits) if digits.isdecimal() and len(digits) <= 15 else None
    # An epoch and a batch number: a step that grows over epochs.
    if groups.get("micro") is None or len(groups["micro"]) > 12 or len(groups["epoch"]) > 9:
        return None
    per_epoch = groups.get("per_epoch")
    if not per_epoch:
        return int(groups["micro"])
    return (max(1, int(groups["epoch"])) - 1) * int(per_epoch) + int(groups["micro"])
