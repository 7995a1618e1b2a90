"""The kernel's part of the sandbox: a filter of system calls, and Landlock.

Plain ctypes, for the zygote, which loads this file by path; it imports nothing of popu. A call that the filter does not
list kills the process (SIGSYS): an error code could be caught and turned into a result. Tables: x86-64 (tested) and
aarch64 (written from the kernel's headers, untested).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Callable

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
KILL_PROCESS, ALLOW = 0x8000_0000, 0x7FFF_0000
LOAD, JUMP_IF_EQUAL, JUMP_IF_GREATER, JUMP_IF_ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06  # classic BPF
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data; an argument has 8 bytes, low half first
SIGABRT = 6
PID = 0xFFFF_FFF0  # stands in for a process's number until it installs its filter

AUDIT = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

# What an interpreter needs that has everything loaded: memory, clocks, and its end.
FREE = {
    "x86_64": {
        "munmap": 11, "brk": 12, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25,
        "madvise": 28, "nanosleep": 35, "getpid": 39, "exit": 60, "gettid": 186, "futex": 202, "restart_syscall": 219,
        "clock_gettime": 228, "clock_nanosleep": 230, "exit_group": 231,
    },
    "aarch64": {
        "munmap": 215, "brk": 214, "rt_sigprocmask": 135, "rt_sigreturn": 139, "sched_yield": 124, "mremap": 216,
        "madvise": 233, "nanosleep": 101, "getpid": 172, "exit": 93, "gettid": 178, "futex": 98, "restart_syscall": 128,
        "clock_gettime": 113, "clock_nanosleep": 115, "exit_group": 94,
    },
}  # fmt: skip
# Allowed with certain arguments only.
GUARDED = {
    "x86_64": {"write": 1, "mmap": 9, "mprotect": 10, "tgkill": 234},
    "aarch64": {"write": 64, "mmap": 222, "mprotect": 226, "tgkill": 131},
}

LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446  # the same on all architectures
LANDLOCK_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # ABI -> how many rights over files it knows
LANDLOCK_NET_SINCE, LANDLOCK_SCOPES_SINCE = 4, 6


class FilterProgram(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


class SystemCallFilter:
    """Allows memory, clocks and exit; writing to `answer_fd` and the standard streams; a process's own abort.

    No memory becomes executable. Everything else, in any other calling convention too, kills. To make the calls of
    `steps` (function, arguments) confines the calling process for good, unless the last returns -1; it needs
    no_new_privs. They are made ready once, since a process that was just forked pays for every object it touches.
    Raises ValueError for a machine without a table.
    """

    def __init__(self, machine: str, answer_fd: int, libc: ctypes.CDLL) -> None:
        if machine not in AUDIT:
            raise ValueError(f"machine: expected one of {sorted(AUDIT)}, found {machine!r}")
        code = _assemble(machine, answer_fd)
        self.code = ctypes.create_string_buffer(code, len(code))
        self.words = memoryview(self.code).cast("B").cast("I")
        self.pid_at = self.words.tolist().index(PID)
        self.program = FilterProgram(len(code) // 8, ctypes.addressof(self.code))
        install = (libc.prctl, (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(self.program), 0, 0))
        self.steps = ((self.enter_pid, ()), install)

    def enter_pid(self) -> None:
        """Make this the filter of the calling process, which is the only one it lets the process abort."""
        self.words[self.pid_at] = os.getpid()


Instruction = tuple[int, int, int, int]


def _assemble(machine: str, answer_fd: int) -> bytes:
    """The filter of the process `PID`, as instructions of classic BPF."""
    guarded = GUARDED[machine]
    blocks = {
        guarded["write"]: _one_of(0, (answer_fd, 1, 2)),
        guarded["mmap"]: _without_bits(2, mmap.PROT_EXEC),
        guarded["mprotect"]: _without_bits(2, mmap.PROT_EXEC),
        guarded["tgkill"]: _own_abort(PID),
    }
    code = [(LOAD, 0, 0, ARCHITECTURE), (JUMP_IF_EQUAL, 1, 0, AUDIT[machine]), (RETURN, 0, 0, KILL_PROCESS)]
    largest = max(*guarded.values(), *FREE[machine].values())
    # The kernel tries every number when it installs a filter: half of them end here.
    code += [(LOAD, 0, 0, NUMBER), (JUMP_IF_GREATER, 0, 1, largest), (RETURN, 0, 0, KILL_PROCESS)]
    for number, block in blocks.items():
        code += [(JUMP_IF_EQUAL, 0, len(block), number), *block]
    for number in FREE[machine].values():
        code += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    code.append((RETURN, 0, 0, KILL_PROCESS))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _argument(index: int) -> Instruction:
    return (LOAD, 0, 0, FIRST_ARGUMENT + 8 * index)


def _one_of(index: int, allowed: tuple[int, ...]) -> list[Instruction]:
    """Allow if the low half of an argument is one of `allowed` (the kernel takes descriptors as 32 bits)."""
    tests = [(JUMP_IF_EQUAL, len(allowed) - i, 0, value) for i, value in enumerate(allowed)]
    return [_argument(index), *tests, (RETURN, 0, 0, KILL_PROCESS), (RETURN, 0, 0, ALLOW)]


def _without_bits(index: int, bits: int) -> list[Instruction]:
    return [_argument(index), (JUMP_IF_ANY_BIT, 0, 1, bits), (RETURN, 0, 0, KILL_PROCESS), (RETURN, 0, 0, ALLOW)]


def _own_abort(pid: int) -> list[Instruction]:
    return [
        _argument(0),
        (JUMP_IF_EQUAL, 0, 3, pid),
        _argument(2),
        (JUMP_IF_EQUAL, 0, 1, SIGABRT),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL_PROCESS),
    ]


def restrict_files(libc: ctypes.CDLL) -> int:
    """Forbid the calling process and its children all files, TCP, and signals to others, as far as Landlock goes.

    Returns the kernel's Landlock ABI; 0 where there is none.
    """
    abi: int = libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    if abi < 1:
        return 0
    files = (1 << LANDLOCK_FILE_RIGHTS[min(abi, max(LANDLOCK_FILE_RIGHTS))]) - 1
    net = 0b11 if abi >= LANDLOCK_NET_SINCE else 0
    scopes = 0b11 if abi >= LANDLOCK_SCOPES_SINCE else 0
    fields = [files] + [net] * (abi >= LANDLOCK_NET_SINCE) + [scopes] * (abi >= LANDLOCK_SCOPES_SINCE)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset: int = libc.syscall(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return 0
    restricted = libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return abi if restricted else 0


def _new_socket() -> object:
    return ctypes.CDLL(None).socket(2, 1, 0)


def _executable_memory() -> object:
    return mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)


# What must kill a confined child at once. Harmless where it does not: nothing is changed and nobody is hit.
CANARIES: dict[str, Callable[[], object]] = {
    "read a file": lambda: os.open("/etc/passwd", os.O_RDONLY),
    "remove a file": lambda: os.unlink("/nonexistent/popu-canary"),
    "open a socket": _new_socket,
    "start a process": os.fork,
    "run a program": lambda: os.execv("/nonexistent/popu-canary", ["x"]),
    "signal a process": lambda: os.kill(os.getpid(), 0),
    "make memory executable": _executable_memory,
    "write to another descriptor": lambda: os.write(0, b"x"),
}
