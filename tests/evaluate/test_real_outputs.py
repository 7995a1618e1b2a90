"""GSM8K by lm-eval's own `hf` back end, with SmolLM2 and adapters that a run of config/smollm2.yaml trained. By hand:

POPU_SMOLLM2=<base> POPU_SMOLLM2_BUNDLE=<checkpoint of a run> pytest -s -m long tests/evaluate/test_real_outputs.py
"""

import os
import re
from pathlib import Path

import pytest

from popu.evaluate import lm_eval_peer, suites
from popu.evaluate.boxed import last_boxed
from popu.evaluate.math_sets import MATH_SUITES
from popu.evaluate.peers import Comparison

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
N_TASKS, TOKENS = 50, 256
NUMBER = r"-?[$0-9.,]{2,}|-?[0-9]+"  # what flexible-extract takes for one

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def members():
    """Directories of adapters by name; None: the bare base."""
    if not (bundle := os.environ.get("POPU_SMOLLM2_BUNDLE")) or not os.environ.get("POPU_SMOLLM2"):
        pytest.skip("POPU_SMOLLM2 and POPU_SMOLLM2_BUNDLE name no base and no checkpoint")
    return {"base": None, **{path.name: path for path in sorted((Path(bundle) / "adapters").iterdir())}}


def test_the_hf_back_ends_answers_are_judged_alike(members):
    from lm_eval.models.huggingface import HFLM

    tasks = suites.tasks("gsm8k", DATA, N_TASKS)
    for name, adapter in members.items():
        peft = {} if adapter is None else {"peft": str(adapter)}
        model = HFLM(pretrained=os.environ["POPU_SMOLLM2"], dtype="float32", device="cpu", batch_size=10, **peft)
        theirs = lm_eval_peer.evaluate(model, tasks, TOKENS, chat=True)
        texts = [theirs[task.task_id][0] for task in tasks]
        ours = MATH_SUITES["gsm8k"].score(tasks, texts, None)
        both = [Comparison(task.task_id, one, theirs[task.task_id][1]) for task, one in zip(tasks, ours, strict=True)]
        differ = [(one, text) for one, text in zip(both, texts, strict=True) if one.disagreement]
        print(
            f"{name}: n {len(both)}, ours {sum(one.ours.passed for one in both)}, lm-eval flexible"
            f" {sum(one.peer.flexible for one in both)}, strict {sum(one.peer.strict for one in both)}; boxes in"
            f" {sum(last_boxed(text) is not None for text in texts)}; they differ on {len(differ)}"
        )
        for one, text in differ:
            print(f"  {one.disagreement}")
            explained = last_boxed(text) is None or re.findall(NUMBER, text)[-1] not in last_boxed(text)
            assert explained, text  # ours finds no box, or the last number stands outside of it
