"""Small tables of known content."""

from popu.report.evidence import Arm

LEVELS = (1, 9)


def heldout(base, **members):
    """A row a member and task: 4 tasks, 8 samples, so many of them correct."""
    rows = []
    for name, corrects in {"base": base, **members}.items():
        for i, n_correct in enumerate(corrects):
            rows.append(
                {
                    "member": name if name == "base" else f"{name}.g0",
                    "slot": "" if name == "base" else name,
                    "task_id": f"code_o/{LEVELS[i % 2]}/{i}",
                    "problem_type": "code_o" if i < 2 else "code_i",
                    "level": LEVELS[i % 2],
                    "samples": 8,
                    "n_correct": n_correct,
                    "greedy_correct": n_correct > 4,
                    "in_buffer": i == 0,
                }
            )
    return rows


def arm(name, tables, metrics=None):
    return Arm(name, dict.fromkeys(tables), metrics or {seed: [] for seed in tables}, tables)


def round_robin(teacher, student, n_correct, step=1):
    return {
        "seed": 1,
        "teacher_arm": "4t4s",
        "teacher_step": step,
        "teacher": teacher,
        "student_arm": "4t4s",
        "student_step": step,
        "student": student,
        "n_attempts": 4,
        "n_correct": n_correct,
    }
