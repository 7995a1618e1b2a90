r"""The final answer in a completion: what its last box holds."""

import re

from popu.evaluate.quantities import read_quantity

BOX = r"\\(?:boxed|fbox|framebox)\s*\{"
# One pass over the text: an escaped character, the beginning of a box, a brace.
TOKEN = re.compile(rf"(?P<box>{BOX})|\\.|(?P<open>\{{)|(?P<close>\}})", re.DOTALL)
MARK = "####"


def last_boxed(text: str) -> str | None:
    r"""Return what stands in the box that closes last, None without one.

    Boxes are `\boxed{}`, `\fbox{}` and `\framebox{}`; braces balance, and an escaped one does not count. Of boxes in
    one another the outer one is taken, and a box around nothing but a box is opened too. A box that never closes, of a
    completion that was cut, is none; an earlier one then stands. An empty box is no answer.
    """
    opened: list[re.Match[str] | None] = []  # None for a brace that begins no box
    boxes: list[tuple[int, int, int]] = []  # in the order of closing: beginning, beginning and end of the content
    for token in TOKEN.finditer(text):
        if token["box"] or token["open"]:
            opened.append(token if token["box"] else None)
        elif token["close"] and opened and (box := opened.pop()):
            boxes.append((box.start(), box.end(), token.start()))
    if not boxes:
        return None
    _, start, end = boxes.pop()
    for outside, inner_start, inner_end in reversed(boxes):
        if outside < start or text[start:outside].strip() or text[inner_end + 1 : end].strip():
            break
        start, end = inner_start, inner_end
    return text[start:end].strip() or None


def final_answer(completion: str) -> str | None:
    """Return the answer that a completion gives, None for none.

    It is what the last box holds. Without a box it is the rest of the line after the last `####` that a number follows,
    the form of GSM8K's own solutions: `####` also begins a heading.
    """
    boxed = last_boxed(completion)
    if boxed is not None:
        return boxed
    marked = [part.partition("\n")[0].strip() for part in completion.split(MARK)[1:]]
    return next((answer for answer in reversed(marked) if read_quantity(answer)), None)
