"""What a base's own proposals are like: how many are valid, and how often it solves them itself."""

from typing import Any

from popu.config import Run
from popu.engine.base import TransformersEngine
from popu.engine.protocol import Request
from popu.grammar.examples import reference_of, sample_example
from popu.grammar.levels import PRETRAINING_LEVELS, measure_level
from popu.problems.check import answer_of, judge, validate
from popu.problems.prompts import proposer_prompt, solver_prompt
from popu.problems.types import PROBLEM_TYPES, Problem, ProblemType, Proposal, Validated
from popu.sandbox.executor import Executor
from popu.sandbox.verdicts import Status, Verdict
from popu.seeds import derive_rng, derive_seed

N_PROPOSALS = 200  # of each type
N_ROLLOUTS = 8


def own_proposals(engine: TransformersEngine, executor: Executor, settings: Run) -> dict[str, Any]:
    """Shares over proposals of all types at temperature 1, references held out from pretraining."""
    rng = derive_rng("card-references")
    drawn: list[tuple[ProblemType, str, Request]] = []
    for problem_type in PROBLEM_TYPES:
        for i in range(N_PROPOSALS):
            n = 1 if problem_type == "code_f" else settings.training.proposals.n_references
            levels = [rng.choice(PRETRAINING_LEVELS) for _ in range(n)]
            references = [reference_of(sample_example(level, "heldout", rng)) for level in levels]
            prompt = engine.encode(proposer_prompt(problem_type, references, settings.base.prompt_style))
            program = references[0].program
            drawn.append((problem_type, program, _request(settings, f"p/{problem_type}/{i}", prompt, 1)))
    completions = [group[0] for group in engine.generate([request for *_, request in drawn], {})]
    proposals = [
        Proposal(t, engine.decode(c.tokens), program if t == "code_f" else None, c.finish_reason == "length")
        for (t, program, _), c in zip(drawn, completions, strict=True)
    ]
    results = validate(proposals, executor)
    valid = [(t, result) for (t, *_), result in zip(drawn, results, strict=True) if result.status is Status.OK]
    rhos = _rhos(engine, executor, settings, [_problem(t, result) for t, result in valid])
    written = [result.program for t, result in valid if t != "code_f"]
    levels_written = [measure_level(program) for program in written]
    return {
        "n": len(proposals),
        "valid": round(len(valid) / len(proposals), 4),
        "mean_rho": round(sum(rhos) / len(rhos), 4),
        "share_rho_between_0_and_1": round(sum(0 < rho < 1 for rho in rhos) / len(rhos), 4),
        "distinct_programs": round(len(set(written)) / len(written), 4),
        "levels": {str(level): levels_written.count(level) for level in sorted(set(levels_written))},
    }


def _rhos(engine: TransformersEngine, executor: Executor, settings: Run, problems: list[Problem]) -> list[float]:
    requests = [
        _request(settings, f"s/{i}", engine.encode(solver_prompt(problem, settings.base.prompt_style)), N_ROLLOUTS)
        for i, problem in enumerate(problems)
    ]
    groups = engine.generate(requests, {})
    answers = [
        answer_of(problem, engine.decode(completion.tokens), completion.finish_reason == "length")
        for problem, group in zip(problems, groups, strict=True)
        for completion in group
    ]
    verdicts = [judged.verdict is Verdict.CORRECT for judged in judge(answers, executor)]
    return [sum(verdicts[i : i + N_ROLLOUTS]) / N_ROLLOUTS for i in range(0, len(verdicts), N_ROLLOUTS)]


def _request(settings: Run, request_id: str, prompt: tuple[int, ...], n: int) -> Request:
    budget = settings.training.sampling.max_new_tokens
    return Request(request_id, prompt, None, n, budget, 1.0, derive_seed("card"))


def _problem(problem_type: ProblemType, result: Validated) -> Problem:
    return Problem(problem_type, result.program, result.inputs, result.outputs, result.message)
