"""Inside the child: runs a program on its inputs and reports canonical values, in one of two profiles.

`Runner` is the profile of training: facades of allowed modules, restricted builtins, arguments as literals, values of
exact types. `EvaluationRunner` is for benchmark programs, which need more: real modules and builtins, arguments as
expressions, scripts that read standard input, wider values. What confines either in the end is `confinement`.

The zygote loads this file by path; it imports nothing of popu.
"""

from __future__ import annotations

import builtins
import codecs
import contextlib
import importlib.util
import io
import marshal
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

CODECS = (
    *("ascii", "latin-1", "cp1252", "unicode_escape", "raw_unicode_escape", "hex", "base64", "rot13"),
    *(
        "cp437",
        "cp1251",
        "koi8-r",
        "iso8859-15",
        "mac-roman",
        "shift_jis",
        "euc_jp",
        "gbk",
        "gb18030",
        "big5",
        "euc_kr",
    ),
    *("utf-7", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"),
)
LOADED_BY_BUILTINS = ("unicodedata", "_pylong")  # by `'\N{DASH}'`; since Python 3.12 by the decimals of large integers
MEMORY_ANSWER = b"memory\nMemoryError"
PROGRAM_NAME = "program"  # `sys.modules` has it
SOURCE_NAME = "<program>"
CALLEE = "__call__"
FLOATS = {"inf": float("inf"), "nan": float("nan")}  # names that canonical texts have and Python has not
LARGE_BITS = 20_000
LONG = 65_536  # characters of a string, or marshalled bytes of a list, from which a digest is compared
LONG_AS_IT_IS = LONG // 5  # bytes of a list that may be LONG in its normal form: True has 1, 1 has 5
EXACT_INTS = 2**53  # floats up to here that are whole numbers equal one int
MARSHALLED_PER_TEXT = 5 / 3  # bytes at most: "1, " is marshalled in 5
SCALARS: tuple[type[Any], ...] = (int, float, complex, str, bytes)
SEQUENCES: tuple[type[Any], ...] = (list, tuple, set, frozenset)


class Printed(str):
    """What a script printed: its scorer needs all of it."""


class Unequal(Exception):
    """Two calls with equal arguments gave different values."""


class Runner:
    """Runs programs; holds what every child shares: the codec of values, the module facades, the builtins."""

    warm_up_inputs: tuple[Any, ...] = (marshal.dumps((([1, "a", {2: -3}],), {})),)

    def __init__(self, values: types.ModuleType, allowed: types.ModuleType) -> None:
        self.values = values
        self.send: Callable[[bytes], None] = no_receiver  # for a denial; the zygote sets it before it forks
        for codec in CODECS:  # a lookup in the child would have to open a file
            codecs.lookup(codec)
        for name in LOADED_BY_BUILTINS:
            if importlib.util.find_spec(name):
                importlib.import_module(name)
        self.prepare(allowed)

    def prepare(self, allowed: types.ModuleType) -> None:
        """Load the modules and set the builtins that programs get."""
        self.facades = facades(allowed.MODULES, allowed.BANNED_MEMBERS)
        kept = {name: value for name, value in vars(builtins).items() if name not in allowed.BANNED_BUILTINS}
        for name in ("getattr", "hasattr", "setattr", "delattr"):
            kept[name] = self.guarded(getattr(builtins, name), allowed)
        kept["__import__"] = self.import_module
        self.builtins = kept

    def answer(self, work: bytes) -> bytes:
        """Return lines: the status, then one output per input where that is ok, else the reason.

        `work` is a marshalled tuple, see `execute`. A canonical text holds no line break.
        """
        try:
            status, rest = self.execute(*marshal.loads(work))
            return f"{status}\n{rest}".encode("utf-8", "backslashreplace")
        except MemoryError:
            return MEMORY_ANSWER

    def execute(self, source: str, entry: Any, inputs: Sequence[Any], twice: str, value_bytes: int) -> tuple[str, str]:
        """Return how the program did on the inputs: its status, and the outputs' lines or the reason."""
        try:
            outputs = self.outputs(source, entry, inputs, twice == "calls", value_bytes)
            if twice == "reversed":
                again = self.outputs(source, entry, inputs[::-1], False, value_bytes)[::-1]
                if outputs != again:
                    return "nondeterministic", "another order of inputs gave other values"
            return "ok", "\n".join(outputs)
        except Unequal:
            return "nondeterministic", "two calls in one process gave different values"
        except MemoryError:
            raise
        except self.values.ValueTooLarge as error:
            return "too_large", error.reason
        except self.values.ValueRejected as error:
            return "unsupported_value", error.reason
        except BaseException as error:  # KeyboardInterrupt and SystemExit are the program's too
            return "raised", describe(error)

    def outputs(self, source: str, entry: Any, inputs: Sequence[Any], twice: bool, value_bytes: int) -> list[str]:
        """Return the outputs of a fresh copy of the program, each call made twice if so asked."""
        call = self.program(source, entry)
        outputs = []
        for arguments in inputs:
            output = self.encode(call(arguments), value_bytes)
            if twice and self.encode(call(arguments), value_bytes) != output:
                raise Unequal
            outputs.append(output)
        return outputs

    def program(self, source: str, entry: Any) -> Callable[[Any], object]:
        """Run the program's top level; return its function `entry`, to be called with a marshalled argument list.

        The arguments are made afresh for every call.
        """
        function = self.namespace(source)[entry]

        def call(marshalled: bytes) -> object:
            args, kwargs = marshal.loads(marshalled)
            return function(*args, **kwargs)

        return call

    def namespace(self, source: str, name: str = PROGRAM_NAME) -> dict[str, Any]:
        """Run a program's top level as the module `name`; return what it defines."""
        module = types.ModuleType(name)
        module.__dict__["__builtins__"] = self.builtins
        sys.modules[name] = module  # dataclasses look the module of a class up
        exec(compile(source, SOURCE_NAME, "exec", dont_inherit=True), module.__dict__)
        return module.__dict__

    def encode(self, value: object, value_bytes: int) -> str:
        """Return the canonical text of a result."""
        text: str = self.values.canonical(value, value_bytes)
        return text

    def deny(self, reason: str) -> NoReturn:
        """Report and exit at once, so that a program cannot catch the denial."""
        self.send(f"denied\n{reason}".encode("utf-8", "backslashreplace"))
        os._exit(0)

    def import_module(
        self,
        name: str,
        namespace: object = None,
        local: object = None,
        names: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> types.ModuleType:
        """The program's `__import__`: facades of the allowed modules, nothing else."""
        if level or name not in self.facades:
            self.deny(f"import of {str(name)[:40]}")
        return self.facades[name if names else name.partition(".")[0]]

    def guarded(self, builtin: Callable[..., object], allowed: types.ModuleType) -> Callable[..., object]:
        """Return `getattr` or a relative of it without the attributes that the static check bans."""

        def guard(target: object, name: str, *rest: object) -> object:
            if type(name) is str:
                hidden = name.startswith("__") and name not in allowed.DUNDER_ATTRIBUTES
                if hidden or name in allowed.BANNED_ATTRIBUTES:
                    self.deny(f"attribute {name[:40]}")
            elif isinstance(name, str):
                self.deny("attribute named by a subclass of str")
            return builtin(target, name, *rest)

        return guard


class EvaluationRunner(Runner):
    """Runs benchmark programs. They may reach the whole interpreter of their child; the kernel's walls are the same."""

    warm_up_inputs = ("[1, 'a', {2: -3}]",)

    def prepare(self, allowed: types.ModuleType) -> None:
        for name in sorted(allowed.MODULES | allowed.EVALUATION_MODULES):
            importlib.import_module(name)
        importlib.import_module("time").localtime()  # reads the time zone's file
        self.sha256 = sys.modules["hashlib"].sha256
        self.builtins = {**vars(builtins), "open": self.open_stream, "exit": sys.exit, "quit": sys.exit}

    def program(self, source: str, entry: str | None) -> Callable[[str], object]:
        """As in training, but arguments are texts of expressions in the program's namespace, and of inf and nan.

        Without `entry` the program is a script: what it gets is the text of its standard input, what it returns is what
        it printed.
        """
        if entry is None:
            return lambda text: self.script(source, text)
        space = self.namespace(source)
        function = space[entry]
        return lambda text: eval(arguments_code(text), {**space, **FLOATS, CALLEE: function})

    def script(self, source: str, text: str) -> str:
        """Run a program as `__main__`; return the text that it printed."""
        printed = io.BytesIO()
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "surrogatepass")), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(printed, encoding="utf-8", write_through=True)
        try:
            self.namespace(source, "__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        return Printed(printed.getvalue().decode("utf-8", "replace"))

    def open_stream(self, file: object, *args: Any, **kwargs: Any) -> Any:
        """`open` for standard input alone; anything else meets the filter of system calls."""
        return sys.stdin if file == 0 else open(file, *args, **kwargs)  # type: ignore[call-overload]

    def encode(self, value: object, value_bytes: int) -> str:
        """As in training, of the value as `plain` gives it.

        A long value becomes a digest, since benchmarks have outputs of a gigabyte, and reading one back takes the time
        of thousands of calls: a string, a list or tuple of strings and whole numbers, and any other of plain types
        whose text is over the cap. Sets and dicts have their own order in the last. No tolerance looks into a digest.
        """
        content = digested(value, value_bytes)
        if content is not None:
            return self.digest(content)
        try:
            return super().encode(self.plain(value), value_bytes)
        except self.values.ValueTooLarge:
            with contextlib.suppress(ValueError):  # of plain types
                return self.digest(marshal.dumps(value, 0))  # type: ignore[arg-type]
            raise

    def digest(self, content: bytes) -> str:
        return repr(("sha256", self.sha256(content).hexdigest()))

    def plain(self, value: object, depth: int = 0) -> object:
        """Return a value of the exact types.

        What Python holds equal to a plain value becomes that: Counter, OrderedDict and other subclasses of dict a dict,
        a named tuple a tuple, an IntEnum an int. What it does not becomes a tuple with its type's name in front:
        deque, range, views of a dict, bytearray, Fraction, Decimal, and re.Match as its truth and span. So does an int
        too large to be written in decimals in reasonable time, in hexadecimals.
        """
        if depth > self.values.MAX_DEPTH:
            raise self.values.ValueRejected(f"nested deeper than {self.values.MAX_DEPTH}")
        if isinstance(value, bool | None):
            return value
        if isinstance(value, int) and value.bit_length() > LARGE_BITS:
            return ("int", hex(value))
        for scalar in SCALARS:
            if isinstance(value, scalar):
                return value if type(value) is scalar else scalar(value)
        if isinstance(value, dict):
            return {self.plain(k, depth + 1): self.plain(v, depth + 1) for k, v in value.items()}
        for container in SEQUENCES:
            if isinstance(value, container):
                return container(self.plain(item, depth + 1) for item in value)
        parts = self.parts(value)
        if parts is None:
            return value  # of another type: the codec refuses it
        return (type(value).__name__, *(self.plain(part, depth + 1) for part in parts))

    def parts(self, value: object) -> tuple[object, ...] | None:
        """What tells a value of one of the further types from others of its type."""
        modules = sys.modules
        if isinstance(value, modules["collections"].deque):
            return (list(value),)  # type: ignore[call-overload]
        if isinstance(value, range):
            return (value.start, value.stop, value.step)
        if isinstance(value, type({}.keys()) | type({}.items())):
            return (set(value),)
        if isinstance(value, type({}.values())):
            return (list(value),)
        if isinstance(value, bytearray):
            return (bytes(value),)
        if isinstance(value, modules["fractions"].Fraction):
            return (value.numerator, value.denominator)  # type: ignore[attr-defined]
        if isinstance(value, modules["decimal"].Decimal):
            return (str(value),)
        if isinstance(value, modules["re"].Match):
            return (True, value.span())  # type: ignore[attr-defined]
        return None


RUNNERS = {"training": Runner, "evaluation": EvaluationRunner}


def arguments_code(text: str) -> types.CodeType:
    """Compile a call of `CALLEE` with the arguments that `text` writes; `0) or (1` writes none."""
    tree = sys.modules["ast"].parse(f"{CALLEE}({text}\n)", mode="eval")
    if not (type(tree.body).__name__ == "Call" and getattr(tree.body.func, "id", "") == CALLEE):
        raise SyntaxError("not an argument list")
    code: types.CodeType = compile(tree, SOURCE_NAME, "eval")
    return code


def digested(value: object, value_bytes: int) -> bytes | None:
    """What stands for a long value in its digest; None for a value that passes as text, or is none."""
    if isinstance(value, str):
        long = len(value) > LONG and not isinstance(value, Printed)
        return str(value).encode("utf-8", "surrogatepass") if long else None
    try:
        marshalled = marshal.dumps(value, 0)  # type: ignore[arg-type]
    except ValueError:  # of another type: `plain` may still know it
        return None
    if len(marshalled) > MARSHALLED_PER_TEXT * value_bytes:  # too large for a normal form beside it
        return marshalled
    if len(marshalled) > LONG_AS_IT_IS and (normal := normal_form(value)) is not None:
        content = marshal.dumps(normal, 0)
        return content if len(content) > LONG else None
    return None


def normal_form(value: object) -> Any:
    """A list or tuple of strings and whole numbers with every number as an int, so that equal ones have equal bytes.

    None for another value, and within one for None and what is not whole: those pass as text.
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < EXACT_INTS else None
    if type(value) not in (list, tuple):
        return None
    items = []
    for item in value:  # type: ignore[attr-defined]
        normal = normal_form(item)
        if normal is None:
            return None
        items.append(normal)
    return items if type(value) is list else tuple(items)


def no_receiver(content: bytes) -> None:
    """Stands in for the way out before a request has one: the warm-up sends nothing."""


def facades(names: frozenset[str], banned: frozenset[str]) -> dict[str, types.ModuleType]:
    """Return copies of the modules that hold their public members only.

    The modules themselves hold `sys` and others as members, and a program could patch what this file uses.
    """
    copies = {}
    for name in sorted(names):
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or [member for member in vars(module) if member[0] != "_"]
        copy = types.ModuleType(name, module.__doc__)
        for member in public:
            value = getattr(module, member)
            if member not in banned and not isinstance(value, types.ModuleType):
                setattr(copy, member, value)
        copies[name] = copy
    copies["collections"].abc = copies["collections.abc"]  # type: ignore[attr-defined]
    return copies


def describe(error: BaseException) -> str:
    """Return the name and message of an exception; a message that cannot be made is left out."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:200] if str(error) else name[:200]
    except BaseException:
        return name[:200]
