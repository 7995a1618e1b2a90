"""Prompts of the three solver and three proposer formats.

Two styles: `compact` for a base that was pretrained on these very formats (every token counts), `instruct` for a
language model that follows instructions. Both ask for the same fenced blocks, which `parse` reads.
"""

from collections.abc import Sequence

from popu.problems.types import N_PAIRS, N_SHOWN, Problem, PromptStyle, Reference


def fence(tag: str, text: str) -> str:
    """One fenced block; the closing fence stands at the start of a line."""
    return f"```{tag}\n{text}\n```\n"


def solver_prompt(problem: Problem, style: PromptStyle) -> str:
    """What the student sees of a problem: never the part that it has to give."""
    return f"{_SOLVER_TEXT[style][problem.problem_type]}\n{shown_part(problem)}"


def shown_part(problem: Problem) -> str:
    """The fenced blocks that the student sees."""
    if problem.problem_type == "code_o":
        return fence("python", problem.program) + fence("input", problem.inputs[0])
    if problem.problem_type == "code_i":
        return fence("python", problem.program) + fence("output", problem.outputs[0])
    pairs = zip(problem.inputs[:N_SHOWN], problem.outputs[:N_SHOWN], strict=True)
    blocks = (fence("input", given) + fence("output", output) for given, output in pairs)
    return "".join(blocks) + fence("message", problem.message)


def proposer_prompt(problem_type: str, references: Sequence[Reference], style: PromptStyle) -> str:
    """What the teacher sees: reference problems, or for `code_f` the program it writes inputs and a message for."""
    text = _PROPOSER_TEXT[style][problem_type]
    if problem_type == "code_f":
        if len(references) != 1:
            raise ValueError(f"references: a code_f proposal takes exactly 1 program, found {len(references)}")
        blocks = fence("python", references[0].program)
    else:
        blocks = "".join(fence("python", ref.program) + fence("input", ref.input) for ref in references)
    # The compact order tells a base without instructions where the references end and its own problem begins.
    return f"{blocks}{text}\n" if style == "compact" else f"{text}\n{blocks}"


def answer_text(problem: Problem) -> str:
    """The gold completion of a solver: what pretraining of a base shows as the answer."""
    if problem.problem_type == "code_o":
        return fence("output", problem.outputs[0])
    if problem.problem_type == "code_i":
        return fence("input", problem.inputs[0])
    return fence("python", problem.program)


def proposal_text(problem: Problem) -> str:
    """The completion of a proposer that would make this problem."""
    if problem.problem_type == "code_f":
        return "".join(fence("input", given) for given in problem.inputs) + fence("message", problem.message)
    return fence("python", problem.program) + fence("input", problem.inputs[0])


_SOLVER_TEXT: dict[PromptStyle, dict[str, str]] = {
    "compact": {"code_o": "deduce", "code_i": "abduce", "code_f": "induce"},
    "instruct": {
        "code_o": "Given the Python function `f` and its input below, work out what `f` returns. Reply with one block "
        "that opens with ```output and closes with ```, holding only the returned value as a Python literal.",
        "code_i": "Given the Python function `f` and an output below, find an input for which `f` returns that output. "
        "Reply with one block that opens with ```input and closes with ```, holding only the arguments as Python "
        "literals separated by commas.",
        "code_f": "Given the inputs and outputs of an unknown Python function and a message about it, write the "
        "function. Reply with one block that opens with ```python and closes with ```, defining `f`.",
    },
}

_PROPOSER_TEXT: dict[PromptStyle, dict[str, str]] = {
    "compact": {"code_o": "propose deduce", "code_i": "propose abduce", "code_f": "propose induce"},
    "instruct": {
        "code_o": "Write a new Python function `f` and one input for it, so that working out the output takes careful "
        "thought. It must be deterministic, import no random, time, file or network module, and differ from the "
        "examples. Reply with one ```python block defining `f` and one ```input block with the arguments as Python "
        "literals separated by commas. Examples:",
        "code_i": "Write a new Python function `f` and one input for it, so that finding the input from the output "
        "takes careful thought. It must be deterministic, import no random, time, file or network module, and differ "
        "from the examples. Reply with one ```python block defining `f` and one ```input block with the arguments as "
        "Python literals separated by commas. Examples:",
        "code_f": f"Write {N_PAIRS} different inputs for the Python function `f` below and a short message that helps "
        "someone who sees only inputs and outputs to write it, without giving the code away. Reply with "
        f"{N_PAIRS} ```input blocks, each with the arguments as Python literals separated by commas, and one "
        "```message block.",
    },
}
