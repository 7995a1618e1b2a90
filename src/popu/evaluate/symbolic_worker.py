r"""The process that compares expressions: runs math-verify on what `symbolic` sends, a JSON line for a JSON line.

What it reads is text of a model. latex2sympy2_extended parses it by a grammar (ANTLR) and builds sympy objects; no text
reaches Python's `eval`. math-verify's other reader, of plain arithmetic, does end in `sympy.parse_expr`, which
evaluates: it is not used. But sympy computes what it is told to, `9^{9^{9^9}}` too. So every comparison has CPU_S
seconds of processor time, after which the kernel ends the process, and the process cannot hold more than MEMORY_BYTES,
write a file or start a process. It is no sandbox: it can read files.

Run by path with `python -P`, since a module called `math` lies beside it; it imports nothing of popu.
"""

import json
import logging
import os
import resource
import signal
import sys
from typing import Any

from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Expr, Rational

CPU_S = 5.0
MEMORY_BYTES = 2 * 2**30
LARGE_BYTES = 512 * 2**20  # what sympy caches of a large comparison stays: such a process is to be replaced
DIGITS = 30
RELATIVE = Rational(1, 10**6)  # as `quantities.RELATIVE`
# Units are left to `quantities`: math-verify takes the `m` of `6m` for metres.
LATEX = LatexExtractionConfig(
    try_extract_without_anchor=False,
    boxed_match_priority=0,
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="all", equations=False
    ),
)


def equal(gold: str, answer: str) -> bool:
    """Return whether two LaTeX expressions are equal by math-verify, the gold first, without its own time limits.

    Numbers must also agree in proportion: math-verify compares six decimals, by which 1e-8 is 0.
    """
    wanted, given = _parsed(gold), _parsed(answer)
    if not wanted or not given:
        return False
    if not verify(wanted, given, allow_set_relation_comp=True, timeout_seconds=None):
        return False
    return _in_proportion(wanted[0], given[0])


def _parsed(text: str) -> list[Any]:
    """What math-verify reads: the expression, and the text. Only of the whole text, never of a part that it knows."""
    return parse(rf"\boxed{{{text}}}", [LATEX], extraction_mode="first_match", parsing_timeout=None)  # type: ignore


def _in_proportion(gold: Any, answer: Any) -> bool:
    """Return False for two numbers whose difference is more than RELATIVE of the gold."""
    if not all(isinstance(side, Expr) and not side.free_symbols for side in (gold, answer)):
        return True
    try:
        gold, answer = gold.doit(), answer.doit()
        return bool(abs((gold - answer).evalf(DIGITS)) <= RELATIVE * abs(gold.evalf(DIGITS)))
    except (TypeError, ValueError, AttributeError):  # no numbers to sympy, as limits that it cannot find
        return True


def confine() -> None:
    """Limit memory, files and processes; the limit on time is set for each comparison."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))


def main() -> None:
    """Answer requests `[gold, answer]` with `[equal, large]` until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is no answer
    logging.disable()  # it warns of its missing time limits, and of hostile text
    equal(r"\frac{1}{2} x^{2}", r"\frac{x^2}{2}")
    confine()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF's default is to end the process
        try:
            verdict = equal(*json.loads(line))
        except Exception:  # sympy raises anything, memory and recursion included
            verdict = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps([verdict, resident_bytes() > LARGE_BYTES]), file=answers, flush=True)


def resident_bytes() -> int:
    """What the process holds now; the peak of `getrusage` would be that of the process it was started from."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
