r"""Answers against golds. The numbers of reports are those of public reports of wrong scores in other scorers."""

import threading
from fractions import Fraction

import pytest

from popu.evaluate.answers import elements, same_answer
from popu.evaluate.boxed import final_answer, last_boxed
from popu.evaluate.math import mark_truncated, score_against
from popu.evaluate.quantities import read_quantity, same_quantity
from popu.evaluate.suite import TaskScore
from popu.evaluate.symbolic import Symbolic


def box(answer: str) -> str:
    return rf"Therefore the answer is $\boxed{{{answer}}}$."


def never(gold: str, answer: str) -> bool:
    raise AssertionError(f"{gold!r} and {answer!r} need no symbolic comparison")


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        pytest.param(r"so \[\boxed{42}\]", "42", id="report-12-display"),
        pytest.param(r"Thus \boxed{7}.", "7", id="report-13-no-phrase"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),  # escaped braces need not balance
        (r"\fbox{3}", "3"),
        (r"\framebox{204} minutes", "204"),
        (r"\boxed {5}", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{ \fbox{5} }", "5"),
        (r"\boxed{x = \fbox{5}}", r"x = \fbox{5}"),
        (r"\boxed{3} and then \boxed{4", "3"),  # the second was cut
        (r"\boxed{4", None),
        (r"\boxed{}", None),
        ("no box", None),
        ("} \\boxed{6} {", "6"),
    ],
)
def test_last_boxed(completion, answer):
    assert last_boxed(completion) == answer


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        pytest.param("#### 3 ... #### 18", "18", id="report-15-last-mark"),
        ("so\n#### 18\nDone", "18"),
        ("#### $1,450,000", "$1,450,000"),
        ("#### 4. Sum up\nmore", None),  # a heading
        (r"#### 3" + "\n" + r"\boxed{4}", "4"),
        ("The answer is 18.", None),
    ],
)
def test_final_answer_without_a_box(completion, answer):
    assert final_answer(completion) == answer


def test_many_open_boxes_are_read_in_one_pass():
    """A hostile text: quadratic work on it would take minutes."""
    assert last_boxed(r"\boxed{" * 20_000 + "}" * 20_000) is None
    assert last_boxed(r"\boxed{" * 20_000) is None


EQUAL = [  # by text and exact numbers alone
    ("29", "29 dollars"),
    pytest.param("29", r"\$29.00", id="report-14-dollars"),
    pytest.param("29", "$29.00", id="report-14-dollar"),
    ("1625.0", "1,625"),
    ("1625", "1{,}625"),
    ("025", "25"),
    ("25", "025"),
    ("4.5e33", r"4.5\times10^{33}"),
    ("4.5e33", r"4.5 \times 10^{33} \mathrm{~ergs}~\mathrm{s}^{-1}"),
    ("1e-8", "10^{-8}"),
    ("50", r"50\%"),
    (r"50\%", "50"),
    (r"50\%", "0.5"),
    ("0.5", r"50\%"),
    ("62.5%", r"62.5 \text{ percent}"),
    (r"\frac{1}{3}", "0.333333"),
    (r"-1./3", r"-\frac13"),
    (r"1\frac{4}{5}", "1.8"),
    (r"11,\! 111,\! 111,\! 100", "11111111100"),
    ("90^\\circ", "90"),
    (r"\frac{270}7\text{ degrees}", r"\dfrac{270}{7}^{\circ}"),
    (r"15\mbox{ cm}^2", "15"),
    ("12", "12 km/h"),
    ("18", "18 eggs"),
    ("3e8", r"3 \times 10^8 \text{ m/s}"),
    ("4210_{5}", "4210_5"),
    ("4210_{5}", "4210"),
    (r"\text{(E)}", "E"),
    (r"\text{east}", "East"),
    ("69, 84", "84,69"),
    ("100, 200", "100,200"),
    ("3, 5, 7", r"\{7, 5, 3\}"),
    ("-2,-2", "-2"),
    ("(1,1), (3,2)", "(3, 2) and (1, 1)"),
    ("(45^{\\circ}, 60^{\\circ})", r"\left(45, 60\right)"),
    ("x=5", "5"),
    ("5", "x = 5"),
    (r"x \in [-2,7]", "[-2, 7]"),
    (r"(-\infty, 2) \cup (3, \infty)", r"(3,+\infty) \cup (-\infty,2)"),
    ("f(x)=x,f(x)=-x", "-x, x"),
]

DIFFERENT = [
    ("29", "290"),
    ("1/2", "1/3"),
    ("(1,2)", "(2,1)"),
    ("(2,1)", "(3,2)"),
    ("(1,2)", "[1,2]"),
    ("(6,31,-1)", "(6,31,1)"),
    ("50", "0.5"),
    (r"50\%", r"0.5\%"),
    ("4", "-4"),
    ("40_9", "40_8"),
    ("1e-8", "0"),  # six decimals are the same
    ("3.3e-10", r"3.4\times10^{-10}"),
    ("0.0000672", "0.000067"),
    ("1/3", "0.333"),
    ("1000000", "1000000.4"),
    ("1e400", "1e401"),
    ("x=5", "y=5"),
    ("1,2", "1,2,3"),
    ("1,2", "1,3"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_other_spellings_are_equal(gold, answer):
    assert same_answer(gold, answer, lambda *_: False)


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_near_misses_are_refused_in_both_directions(gold, answer):
    assert not same_answer(gold, answer, never)
    assert not same_answer(answer, gold, never)


@pytest.mark.parametrize("text", ["6m", "2xy", r"2\pi", "2 sin x", "3 or 4", "1e9999999", "9" * 500, "", "1/0", "--1"])
def test_what_is_no_quantity(text):
    assert read_quantity(text) is None


def test_a_stated_tolerance_holds_for_numbers():
    gold, near, far = (read_quantity(text) for text in (r"4.2\%", "4.29", "4.31"))
    tenth = Fraction(1, 10)
    assert same_quantity(gold, near, tenth) and not same_quantity(gold, far, tenth)
    assert not same_quantity(gold, read_quantity("0.1"), tenth)  # near to 4.2 % as a value, which nobody asked for


def test_plus_minus_is_two_elements():
    assert elements(r"\{1\pm\sqrt{5},-2\}") == [r"1+\sqrt{5}", r"1-\sqrt{5}", "-2"]


@pytest.fixture(scope="module")
def symbolic_verdicts():
    """One worker for all: the scores of every pair below, by pair."""
    pairs = [*SYMBOLICALLY_EQUAL, *SYMBOLICALLY_DIFFERENT]
    return dict(zip(pairs, score_against([g for g, _ in pairs], [box(a) for _, a in pairs]), strict=True))


SYMBOLICALLY_EQUAL = [
    ("m>=2", "[2,oo)"),  # report 22
    ("[2,oo)", "m>=2"),
    (r"k \geqslant 2", r"[2,\infty)"),
    ("[-2,7]", r"-2 \le x \le 7"),
    (r"(-\infty, 2) \cup (3, \infty)", r"x<2 \text{ or } x>3"),
    (r"1 \pm \sqrt{19}", r"1-\sqrt{19}, 1+\sqrt{19}"),
    (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"),
    ("2k+2", "2(k+1)"),
    (r"5x - 7y + 11z + 4 = 0", "5x-7y+11z=-4"),
    (r"\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}", r"\begin{bmatrix} -\frac{1}{3} \\ \frac23 \end{bmatrix}"),
    ("6 - 5i", "-5i+6"),
    ("np.arcsin(10/13)", r"\arcsin(\frac{10}{13})"),
    (r"5\sqrt{2} \text{ cm}", r"\sqrt{50}"),
    (r"2.2 \tau", r"\frac{11}{5}\tau"),
]
SYMBOLICALLY_DIFFERENT = [
    ("6m", "6"),  # math-verify takes m for metres
    ("6", "6m"),
    (r"\frac{1}{m} t", r"\frac{1}{m}"),
    (r"10^{-20}\pi", r"2\cdot10^{-20}\pi"),  # math-verify rounds both to 0
    (r"\frac{1}{2}", r"\foo{\frac{1}{2}}"),  # and reads what it can of the rest
    ("m>=2", "m>2"),
    (r"[2,\infty)", r"m > 2"),
    (r"\sqrt{2}", "1.41"),
    ("p - q", "q - p"),
    ("2^{n}", "n^2"),
    ("6+9i", "6-9i"),
    (r"1 \pm \sqrt{19}", r"1+\sqrt{19}"),
    ("3", "3 million"),
    (r"\text{east}", "west"),
    ("west", r"\text{east}"),
    ("1,2", "1"),
    ("1", "1,2"),
    ("1,2", "1,1"),
]


@pytest.mark.parametrize("pair", SYMBOLICALLY_EQUAL)
def test_report_22_expressions_are_compared_gold_first(symbolic_verdicts, pair):
    assert symbolic_verdicts[pair].passed


@pytest.mark.parametrize("pair", SYMBOLICALLY_DIFFERENT)
def test_what_math_verify_alone_would_accept_is_refused(symbolic_verdicts, pair):
    assert symbolic_verdicts[pair].reason == "wrong"


def test_report_21_a_thread_gets_the_same_word():
    scores: list[TaskScore] = []
    thread = threading.Thread(target=lambda: scores.extend(score_against(["7", "2k+2"], [box("7"), box("2(k+1)")])))
    thread.start()
    thread.join()
    assert [score.passed for score in scores] == [True, True]


def test_report_16_a_completion_cut_before_its_answer_is_truncated():
    completions = ["let us see", r"let us see \boxed{4", box("5"), box("4")]
    scores = score_against(["4"] * 4, completions)
    assert [score.reason for score in scores] == ["no_answer", "no_answer", "wrong", ""]
    marked = mark_truncated(scores, [False, True, True, True])
    assert [score.reason for score in marked] == ["no_answer", "truncated", "wrong", ""]
    assert not any(score.passed for score in marked[:3])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (r"9^{9^{9^{9}}}", "timeout"),
        (r"\operatorname{eye}(100000)", "wrong"),  # more memory than there may be
        ("(" * 1900 + "x", "timeout"),
        ("9" * 1900, "wrong"),
        ("x" * 100_000, "wrong"),
        (r"\sqrt{" * 150 + "}" * 150, "wrong"),
    ],
)
def test_hostile_answers_end_and_the_next_is_scored(answer, reason):
    hostile, next_one = score_against(["4", "2k+2"], [box(answer), box("2(k+1)")])
    assert hostile.reason == reason
    assert next_one.passed


def test_text_that_is_python_is_not_run(tmp_path):
    mark = tmp_path / "mark"
    code = f"__import__('pathlib').Path('{mark}').touch()"
    scores = score_against(["4"] * 3, [box(code), box(rf"\text{{{code}}}"), box(f"f({code})+1")])
    assert [score.passed for score in scores] == [False] * 3
    assert not mark.exists()


def test_golds_and_completions_must_pair():
    with pytest.raises(ValueError, match="expected one for each of 2 golds, got 1"):
        score_against(["1", "2"], ["1"])


def test_a_worker_started_from_a_large_process_is_kept():
    """A child's peak of memory begins with its parent's: that is no reason to replace it, let alone to time out."""
    held = bytearray(600 * 2**20)
    for at in range(0, len(held), 4096):
        held[at] = 1
    with Symbolic() as symbolic:
        assert symbolic.equal("x+1", "1+x")
        process = symbolic.process
        assert [symbolic.equal("x+1", "1+x") for _ in range(3)] == [True] * 3
        assert symbolic.process is process
