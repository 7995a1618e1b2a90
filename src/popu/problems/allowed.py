"""What a program may use: the one list that the static check and the zygote both read.

This file imports nothing: the zygote loads it by path.
"""

MODULES = frozenset(
    {
        "__future__",
        "bisect",
        "cmath",
        "collections",
        "collections.abc",
        "copy",
        "dataclasses",
        "decimal",
        "enum",
        "fractions",
        "functools",
        "heapq",
        "itertools",
        "math",
        "operator",
        "re",
        "statistics",
        "string",
        "typing",
    }
)

# What the programs of code benchmarks import beyond that; it is loaded before they run.
EVALUATION_MODULES = frozenset(
    name
    for line in (
        "_strptime abc argparse array ast base64 binascii builtins calendar codecs contextlib contextvars csv",
        "datetime difflib email.utils fnmatch getpass glob hashlib hmac html html.parser inspect io json keyword",
        "linecache logging numbers os os.path pathlib pickle platform pprint queue random reprlib secrets shlex",
        "shutil signal stat stringprep struct sys tempfile textwrap threading time timeit token tokenize traceback",
        "tracemalloc types unicodedata unittest unittest.mock urllib.parse uuid warnings weakref",
        "xml.etree.ElementTree zlib",
    )
    for name in line.split()
)

# Builtins a program may not have: they reach the machine or the interpreter, or differ between runs.
BANNED_BUILTINS = frozenset(
    {
        "__import__",
        "__loader__",
        "__spec__",
        "breakpoint",
        "compile",
        "copyright",
        "credits",
        "eval",
        "exec",
        "exit",
        "globals",
        "hash",
        "help",
        "id",
        "input",
        "license",
        "locals",
        "memoryview",
        "open",
        "quit",
        "vars",
    }
)

# Those of them whose value differs between two runs.
RUN_DEPENDENT = frozenset({"hash", "id"})

# Members of allowed modules that read attributes, or evaluate text, named by a string.
BANNED_MEMBERS = frozenset({"Formatter", "ForwardRef", "attrgetter", "get_type_hints", "methodcaller"})

# Attributes that lead from an object to the interpreter's frames and namespaces.
BANNED_ATTRIBUTES = frozenset(
    [f"{kind}_{part}" for kind in ("ag", "cr", "gi") for part in ("code", "frame")]
    + ["co_code", "f_back", "f_builtins", "f_code", "f_globals", "f_locals", "tb_frame", "tb_next"]
)

# Double-underscore attributes that ordinary classes spell out.
DUNDER_ATTRIBUTES = frozenset(
    f"__{name}__"
    for line in (
        "new init post_init name qualname doc class slots copy deepcopy enter exit",
        "str repr hash bool int float index round abs neg pos invert",
        "len getitem setitem delitem contains missing iter next reversed call",
        "eq ne lt le gt ge add radd iadd sub rsub isub mul rmul imul matmul truediv rtruediv",
        "floordiv rfloordiv mod rmod pow rpow and or xor",
    )
    for name in line.split()
)
