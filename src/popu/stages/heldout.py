"""heldout: score the bare base and all members on the held-out suite, after the last step; teachers solve too.

Reads the state after the last step and the buffer; writes heldout/step<n>.parquet: a row a member and task.
"""

from popu import artifacts
from popu.domains.domain import domain_of
from popu.evaluate.heldout import BASE, score
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.buffer import buffer_of_step
from popu.stages.common import population_of, read_member_adapter


def heldout(run: RunDirectory, step: int, backend: Backend, tasks_per_level: int, samples: int) -> None:
    """See the module. Members draw apart by the number of their slot.

    `in_buffer` marks tasks whose program, names and constants aside, was met in training.
    """
    settings = run.settings
    state = run.state(step)
    population = population_of(state).members
    domain = domain_of(settings.training)
    tasks = domain.heldout(tasks_per_level)
    members = {BASE: None, **{m.id: read_member_adapter(run, state, m.slot) for m in population}}
    places = {member.id: int(member.slot[1:]) for member in population}
    engine, executor = backend.engine(settings), backend.executor(settings)
    scores = score(engine, executor, settings, tasks, members, samples, backend.check, places)
    met = {row["program_key"] for past in range(step + 1) for row in buffer_of_step(run, past)}
    slots = {BASE: "", **{member.id: member.slot for member in population}}
    rows = [
        {
            "member": name,
            "slot": slots[name],
            "task_id": task.task_id,
            "problem_type": task.problem.problem_type,
            "level": task.level,
            "samples": samples,
            "n_correct": n_correct,
            "greedy_correct": greedy,
            "in_buffer": domain.program_key(task.problem.program) in met,
        }
        for name, results in scores.items()
        for task, (n_correct, greedy) in zip(tasks, results, strict=True)
    ]
    artifacts.write_table(run.heldout_path(step), "heldout", rows)
