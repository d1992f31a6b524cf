"""Reads a pickle as data. Nothing is imported, called or built: what a pickle asks for is only written down.

A checkpoint is untrusted input, and unpickling runs whatever it says. Here a request to call something
becomes an inert `Call`, a name a `Name`, a dictionary its list of `Pairs`; no value is ever hashed or
compared. Opcodes as in CPython's `pickletools`, protocols 0 to 5.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from relight.checkpoints.access import BadContentError

MAX_OPCODES = 5_000_000
"""More are not followed: a bound on time (about 3 s) and memory (100 MB for an index of real tensors)."""


class TooLongError(Exception):
    """The pickle is longer than what is followed. That says nothing against it."""


class Name:
    """A class or function that the pickle names."""

    __slots__ = ("module", "name")

    def __init__(self, module: object, name: object) -> None:
        self.module = module
        self.name = name


class Call:
    """What a call would have made, had it been made."""

    __slots__ = ("args", "callee", "content", "state")

    def __init__(self, callee: object, args: object) -> None:
        self.callee = callee
        self.args = args
        self.state: object = None
        self.content: list[Any] | None = None
        """What was added to it afterwards: items, or keys and values in turn."""

    def take_state(self) -> dict[str, object]:
        """Takes away the state, as far as its keys are text, and the arguments: frees their memory."""
        state = {k: v for k, v in items(self.state) if isinstance(k, str)}
        if isinstance(self.state, Pairs):
            self.state.content = None
        self.state = self.args = None
        return state

    def is_a(self, name: str) -> bool:
        """It calls something of this name, from whatever module."""
        return isinstance(self.callee, Name) and self.callee.name == name


class Pairs:
    """A dictionary, as keys and values in turn."""

    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content: list[Any] | None = None


class Persistent:
    """A reference to something outside the pickle, by an id (for torch: a storage)."""

    __slots__ = ("id",)

    def __init__(self, id_: object) -> None:
        self.id = id_


def items(value: object) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a dictionary or of a call that was filled like one; nothing for anything else."""
    content = value.content if isinstance(value, Pairs | Call) else None
    if content:
        yield from zip(content[::2], content[1::2], strict=False)


def get(value: object, key: str) -> object:
    """The value of a text key; None if there is none."""
    found: object = None
    for name, item in items(value):
        if isinstance(name, str) and name == key:
            found = item
    return found


def read(
    data: bytes,
    start: int = 0,
    tick: Callable[[], None] = lambda: None,
    built: "Callable[[Call | Persistent], None]" = lambda made: None,
) -> tuple[Any, int]:
    """Reads one pickle.

    Args:
        data: holds it.
        start: where it starts.
        tick: called now and then; may raise to stop.
        built: called with each object once its state is there, whose state it may take over with
            `Call.take_state`, and with each reference to something outside.

    Returns:
        Its value, and the position after its end.

    Raises:
        BadContentError: it is damaged or cut off.
        TooLongError: it has more than `MAX_OPCODES`.
    """
    machine = _Machine(data, start, built)
    run = machine.run
    try:
        for _ in range(MAX_OPCODES >> 16):
            if run(1 << 16):
                return machine.stack[-1], machine.at
            tick()
    except (IndexError, KeyError, ValueError, AttributeError, struct.error, OverflowError) as error:
        raise BadContentError("it is no valid pickle: damaged or cut off") from error
    raise TooLongError(f"its pickle has more than {MAX_OPCODES} steps")


_U2 = struct.Struct("<H").unpack_from
_U4 = struct.Struct("<I").unpack_from
_I4 = struct.Struct("<i").unpack_from
_U8 = struct.Struct("<Q").unpack_from
_F8 = struct.Struct(">d").unpack_from


class _Machine:
    """A stack, a memo, and where we are."""

    __slots__ = ("at", "built", "data", "marks", "memo", "scattered", "stack")

    def __init__(self, data: bytes, at: int, built: Callable[[Call | Persistent], None]) -> None:
        self.built = built
        self.data = data
        self.at = at
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        """What was memorized under 0, 1, 2 and so on, as picklers do; a list needs little memory."""
        self.scattered: dict[int, Any] = {}
        """What was memorized under other numbers."""

    def run(self, count: int) -> bool:
        """Follows so many opcodes; true once the pickle has ended."""
        data, table = self.data, _TABLE
        for _ in range(count):
            opcode = data[self.at]
            self.at += 1
            if opcode == _STOP:
                return True
            table[opcode](self)
        return False

    def take(self, length: int) -> bytes:
        """The next bytes of the pickle."""
        end = self.at + length
        if end > len(self.data):
            raise ValueError("cut off")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def line(self) -> bytes:
        """The next line of the pickle (protocol 0)."""
        end = self.data.index(b"\n", self.at)
        piece = self.data[self.at : end]
        self.at = end + 1
        return piece

    def u1(self) -> int:
        """A byte."""
        value = self.data[self.at]
        self.at += 1
        return value

    def number(self, unpack: Callable[[bytes, int], tuple[Any, ...]], width: int) -> Any:
        """A number of fixed width."""
        (value,) = unpack(self.data, self.at)
        self.at += width
        return value

    def memorize(self, number: int) -> None:
        """Keeps the top of the stack under a number."""
        if number == len(self.memo):
            self.memo.append(self.stack[-1])
        elif number < len(self.memo):
            self.memo[number] = self.stack[-1]
        else:
            self.scattered[number] = self.stack[-1]

    def recall(self, number: int) -> object:
        """What is kept under a number."""
        return self.memo[number] if 0 <= number < len(self.memo) else self.scattered[number]

    def outside(self, id_: object) -> Persistent:
        """A reference to something outside the pickle."""
        made = Persistent(id_)
        self.built(made)
        return made

    def marked(self) -> list[Any]:
        """Everything since the last mark, taken off the stack."""
        mark = self.marks.pop()
        taken = self.stack[mark:]
        del self.stack[mark:]
        return taken


_STOP = ord(".")
_Handler = Callable[[_Machine], None]


def _unknown(m: _Machine) -> NoReturn:
    raise ValueError("unknown opcode")


_TABLE: list[_Handler] = [_unknown] * 256


def _opcode(code: str | bytes) -> Callable[[_Handler], _Handler]:
    def register(handler: _Handler) -> _Handler:
        _TABLE[ord(code)] = handler
        return handler

    return register


def _push_constant(code: str | bytes, value: object) -> None:
    _TABLE[ord(code)] = lambda m: m.stack.append(value)


def _push(code: str | bytes, read_value: Callable[[_Machine], object]) -> None:
    _TABLE[ord(code)] = lambda m: m.stack.append(read_value(m))


_push_constant("N", None)
_push_constant(b"\x88", True)
_push_constant(b"\x89", False)
_push_constant(")", ())
_push("]", lambda m: [])
_push("}", lambda m: Pairs())
_push(b"\x8f", lambda m: [])

_push("K", lambda m: m.u1())
_push("M", lambda m: m.number(_U2, 2))
_push("J", lambda m: m.number(_I4, 4))
_push(b"\x8a", lambda m: int.from_bytes(m.take(m.u1()), "little", signed=True))
_push(b"\x8b", lambda m: int.from_bytes(m.take(m.number(_U4, 4)), "little", signed=True))
_push("G", lambda m: m.number(_F8, 8))
_push("F", lambda m: float(m.line()))
_push("L", lambda m: int(m.line().rstrip(b"L")))

_push(b"\x8c", lambda m: m.take(m.u1()).decode("utf-8", "surrogatepass"))
_push("X", lambda m: m.take(m.number(_U4, 4)).decode("utf-8", "surrogatepass"))
_push(b"\x8d", lambda m: m.take(m.number(_U8, 8)).decode("utf-8", "surrogatepass"))
_push("V", lambda m: m.line().decode("raw-unicode-escape"))
_push("C", lambda m: m.take(m.u1()))
_push("B", lambda m: m.take(m.number(_U4, 4)))
_push(b"\x8e", lambda m: m.take(m.number(_U8, 8)))
_push(b"\x96", lambda m: m.take(m.number(_U8, 8)))
_push("U", lambda m: m.take(m.u1()).decode("latin-1"))
_push("T", lambda m: m.take(m.number(_U4, 4)).decode("latin-1"))
_push("S", lambda m: m.line().strip(b"'\"").decode("latin-1"))

_push("h", lambda m: m.recall(m.u1()))
_push("j", lambda m: m.recall(m.number(_U4, 4)))
_push("g", lambda m: m.recall(int(m.line())))

_push("t", lambda m: tuple(m.marked()))
_push("l", lambda m: m.marked())
_push(b"\x91", lambda m: m.marked())
_push("c", lambda m: Name(m.line().decode("utf-8", "replace"), m.line().decode("utf-8", "replace")))
_push("P", lambda m: m.outside(m.line().decode("utf-8", "replace")))
_push("Q", lambda m: m.outside(m.stack.pop()))
_push(b"\x97", lambda m: Persistent("buffer"))
_push(b"\x82", lambda m: Name("copyreg extension", m.u1()))
_push(b"\x83", lambda m: Name("copyreg extension", m.number(_U2, 2)))
_push(b"\x84", lambda m: Name("copyreg extension", m.number(_I4, 4)))


@_opcode("I")
def _int(m: _Machine) -> None:
    text = m.line()
    m.stack.append({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text))


@_opcode(b"\x80")
def _proto(m: _Machine) -> None:
    if m.u1() > 5:
        raise ValueError("unknown protocol")


@_opcode(b"\x95")
def _frame(m: _Machine) -> None:
    if m.number(_U8, 8) > len(m.data) - m.at:
        raise ValueError("cut off")


@_opcode("0")
def _pop(m: _Machine) -> None:
    if m.marks and m.marks[-1] == len(m.stack):
        m.marks.pop()
    else:
        m.stack.pop()


@_opcode("1")
def _pop_mark(m: _Machine) -> None:
    m.marked()


@_opcode("2")
def _dup(m: _Machine) -> None:
    m.stack.append(m.stack[-1])


@_opcode("(")
def _mark(m: _Machine) -> None:
    m.marks.append(len(m.stack))


@_opcode(b"\x94")
def _memoize(m: _Machine) -> None:
    if m.scattered:
        m.memorize(len(m.memo) + len(m.scattered))
    else:
        m.memo.append(m.stack[-1])


@_opcode("q")
def _binput(m: _Machine) -> None:
    m.memorize(m.u1())


@_opcode("r")
def _long_binput(m: _Machine) -> None:
    m.memorize(m.number(_U4, 4))


@_opcode("p")
def _put(m: _Machine) -> None:
    m.memorize(int(m.line()))


def _tuple_of(count: int) -> _Handler:
    def handler(m: _Machine) -> None:
        if len(m.stack) < count:
            raise IndexError
        m.stack[-count:] = [tuple(m.stack[-count:])]

    return handler


_TABLE[0x85], _TABLE[0x86], _TABLE[0x87] = _tuple_of(1), _tuple_of(2), _tuple_of(3)


def _extend(target: object, values: list[Any]) -> None:
    if isinstance(target, list):
        target.extend(values)
    elif isinstance(target, Call | Pairs) and target.content is None:
        target.content = values
    elif isinstance(target, Call | Pairs) and target.content is not None:
        target.content.extend(values)
    else:
        raise ValueError("nothing that can be filled")


@_opcode("a")
def _append(m: _Machine) -> None:
    value = m.stack.pop()
    _extend(m.stack[-1], [value])


@_opcode("s")
def _setitem(m: _Machine) -> None:
    pair = m.stack[-2:]
    del m.stack[-2:]
    _extend(m.stack[-1], pair)


def _extend_marked(m: _Machine) -> None:
    values = m.marked()
    _extend(m.stack[-1], values)


_TABLE[ord("e")] = _TABLE[ord("u")] = _TABLE[0x90] = _extend_marked


@_opcode("d")
def _dict(m: _Machine) -> None:
    pairs = Pairs()
    pairs.content = m.marked()
    m.stack.append(pairs)


@_opcode(b"\x93")
def _stack_global(m: _Machine) -> None:
    name = m.stack.pop()
    m.stack[-1] = Name(m.stack[-1], name)


def _call(m: _Machine) -> None:
    args = m.stack.pop()
    m.stack[-1] = Call(m.stack[-1], args)


_TABLE[ord("R")] = _TABLE[0x81] = _call


@_opcode(b"\x92")
def _newobj_ex(m: _Machine) -> None:
    keywords = m.stack.pop()
    args = m.stack.pop()
    m.stack[-1] = Call(m.stack[-1], (args, keywords))


@_opcode("i")
def _inst(m: _Machine) -> None:
    name = Name(m.line().decode("utf-8", "replace"), m.line().decode("utf-8", "replace"))
    m.stack.append(Call(name, tuple(m.marked())))


@_opcode("o")
def _obj(m: _Machine) -> None:
    callee, *args = m.marked()
    m.stack.append(Call(callee, tuple(args)))


@_opcode("b")
def _build(m: _Machine) -> None:
    state = m.stack.pop()
    if isinstance(m.stack[-1], Call):
        m.stack[-1].state = state
        m.built(m.stack[-1])


@_opcode(b"\x98")
def _readonly(m: _Machine) -> None:
    if not m.stack:
        raise IndexError
