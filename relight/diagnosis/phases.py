"""Lines that say that training does something other than stepping: saving, loading, evaluating, compiling."""

import re
from dataclasses import dataclass

from relight.diagnosis.findings import PhaseKind


@dataclass(frozen=True)
class PhaseFormat:
    """One way to say that a phase began or ended. Groups: `step`, `path`."""

    phase: PhaseKind
    begins: bool
    pattern: re.Pattern[str]


def _p(phase: PhaseKind, begins: bool, pattern: str) -> PhaseFormat:
    return PhaseFormat(phase, begins, re.compile(pattern))


_SAVE, _LOAD, _EVAL = PhaseKind.CHECKPOINT_SAVE, PhaseKind.CHECKPOINT_LOAD, PhaseKind.EVALUATION
_COMPILE, _DATA = PhaseKind.COMPILATION, PhaseKind.DATA_LOADING

FORMATS: tuple[PhaseFormat, ...] = (
    # Ends first: "finished saving the checkpoint" also reads as "saving the checkpoint".
    _p(
        _SAVE,
        False,
        r"successfully saved checkpoint(?: (?:from|at))? iteration +(?P<step>\d+)(?: to (?P<path>\S+))?",
    ),
    _p(_SAVE, False, r"Finished saving the checkpoint"),
    _p(_SAVE, False, r"Saved checkpoint (?P<path>\S+) \(epoch \d+ @ (?P<step>\d+) updates"),
    _p(_SAVE, False, r"(?i)\bsuccessfully saved? (?:the )?(?:model|checkpoint)(?: to (?P<path>\S+))?"),
    _p(
        _SAVE,
        False,
        r"(?i)\b(?:checkpoint|model) (?:was )?saved (?:to|in|at|successfully)(?: (?P<path>/\S+))?",
    ),
    _p(_SAVE, False, r"(?i)^time on save model"),
    _p(_SAVE, True, r"saving checkpoint at iteration +(?P<step>\d+) to (?P<path>\S+)"),
    _p(_SAVE, True, r"Saving checkpoint to (?P<path>\S*?(?P<step>\d{3,})\.pth)"),
    _p(
        _SAVE,
        True,
        r"(?i)\bsaving (?:the |full |model )?(?:checkpoint|model|state)\b(?:.{0,20}? to (?P<path>\S+))?",
    ),
    _p(
        _LOAD,
        False,
        r"successfully loaded checkpoint from (?P<path>\S+)(?:.{0,40}at iteration +(?P<step>\d+))?",
    ),
    _p(
        _LOAD,
        False,
        r"(?i)\b(?:finished loading|loaded) (?:the )?checkpoint(?: (?:from )?(?P<path>/\S+))?"
        r"(?:.{0,40}?\bat (?:step|iteration) +(?P<step>\d+))?",
    ),
    _p(
        _LOAD,
        True,
        r"(?i)\bloading (?:the )?(?:model |release )?checkpoint(?: from (?P<path>\S+))?"
        r"(?:.{0,40}at iteration +(?P<step>\d+))?",
    ),
    _p(_LOAD, True, r"(?i)\bresum(?:e|ing) (?:training )?from (?:checkpoint:? )?(?P<path>/\S+)"),
    _p(_EVAL, False, r"validation loss at iteration +(?P<step>\d+)"),
    _p(_EVAL, False, r"\bvalid on '[^']+' subset"),
    _p(_EVAL, False, r"'eval_loss': "),
    _p(_EVAL, True, r"\*{5} Running (?:Evaluation|Prediction)"),
    _p(_EVAL, True, r"(?i)\b(?:begin|start|run)(?:ning)? (?:of )?(?:validation|evaluation)\b"),
    _p(_EVAL, True, r"(?i)^\s*(?:validation|validating|evaluating)\b.{0,20}\d%\|"),
    _p(_EVAL, False, r"(?i)^step \d+: train loss [\d.]+, val loss"),
    _p(_COMPILE, True, r"(?i)\bcompiling (?:module|the model|graph|kernels?|each)\b"),
    _p(_COMPILE, True, r"slow_operation_alarm"),
    _p(_DATA, True, r"building (?:train|the index|shuffle|indices)"),
    _p(_DATA, True, r"(?i)\bbuilding the indices on rank"),
)

TRIGGERS: tuple[str, ...] = (
    r"[Ss]av(?:ing|ed?) .{0,20}(?:heckpoint|model|state)",
    r"(?:heckpoint|odel) (?:was )?saved",
    r"Time on save model",
    r"(?:oad(?:ing|ed)) .{0,12}heckpoint",
    r"[Rr]esum(?:e|ing) .{0,30}from",
    r"validation loss at iteration",
    r"valid on '",
    r"'eval_loss': ",
    r"\*{5} Running (?:Evaluation|Prediction)",
    r"(?:[Vv]alidati(?:on|ng)|[Ee]valuati(?:on|ng))",
    r"train loss [\d.]+, val loss",
    r"[Cc]ompiling ",
    r"slow_operation_alarm",
    r"building (?:train|the ind|shuffle|indices)",
)
"""For Hyperscan: every line that a format matches contains one of these."""


def parse(text: str) -> tuple[PhaseFormat, re.Match[str]] | None:
    """The phase line that this is, or None."""
    for form in FORMATS:
        if (m := form.pattern.search(text)) is not None:
            return form, m
    return None
