import itertools
import random

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from popu.nano import pretrain
from popu.nano.build import make_corpus, make_tokenizer, run_phase
from popu.nano.corpus import MAX_NOTES, ROW_KINDS, sample_rows
from popu.nano.packing import pack
from popu.nano.pretrain import ROW_WIDTH, Phase, batches, encode_rows, phase, schedule, weighted_loss
from popu.nano.tokenizer import FENCES, train_tokenizer


@pytest.fixture(scope="module")
def rows():
    return list(itertools.islice(sample_rows("trunk", 0.5, random.Random(0)), 300))


@pytest.fixture(scope="module")
def tokenizer(rows):
    return train_tokenizer(row.prefix + "".join(a + b for a, b in row.branches) for row in rows)


def test_rows_have_the_formats_of_the_self_play(rows):
    heads = {row.prefix.split("\n")[0] for row in rows if not row.prefix.startswith("```")}
    assert heads == {"deduce", "abduce", "induce"}
    tails = {row.prefix.splitlines()[-1] for row in rows if row.prefix.startswith("```")}
    assert tails == {"propose deduce", "propose abduce", "propose induce"}
    assert all(abs(sum(kinds.values()) - 1) < 1e-9 for kinds in ROW_KINDS.values())


def test_slips_change_the_stated_share_of_answers():
    clean = list(itertools.islice(sample_rows("trunk", 0.0, random.Random(5)), 1))[0]
    assert clean == next(sample_rows("trunk", 0.0, random.Random(5)))

    def answers(share):
        rows = itertools.islice(sample_rows("branch", share, random.Random(1)), 400)
        return [row for row in rows if row.prefix.startswith("deduce")]

    from popu.problems.parse import parse_answer

    wrong = total = 0
    for row in answers(0.4):
        program = row.prefix.split("```python\n")[1].split("\n```")[0]
        for given, answer in row.branches:
            namespace: dict = {}
            exec(program, namespace)  # the grammar's own program
            arguments = given.split("\n")[1]
            expected = eval(f"f({arguments})", namespace)
            wrong += repr(expected) != repr(eval(parse_answer("code_o", answer)))
            total += 1
    assert wrong / total == pytest.approx(0.4, abs=0.05)


def test_outputs_alone_come_with_notes(rows):
    answers = [(row.prefix.split("\n")[0], answer) for row in rows for _, answer in row.branches]
    noted = {head for head, answer in answers if not answer.startswith("```")}
    assert noted == {"deduce"}
    notes = [answer.split("```")[0] for head, answer in answers if head == "deduce"]
    assert all(note.count(" -> ") < MAX_NOTES and note.count("\n") == (1 if note else 0) for note in notes)
    assert 0.2 < sum(map(bool, notes)) / len(notes) < 0.8


def test_digits_fences_and_letters_are_single_tokens(tokenizer):
    text = "deduce\n```python\ndef f(x):\n    return x + 120\n```\n```input\n'abc', [1, 23]\n```\n"
    tokens = tokenizer.tokenize(text)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert all(fence in tokens for fence in ("```python\n", "```input\n", "\n```\n")) and len(FENCES) == 5
    assert not any(sum(c.isdigit() for c in token) > 1 for token in tokens)
    assert "ab" not in tokens


def test_encoding_in_parts_equals_encoding_whole(rows, tokenizer):
    for row in rows[:100]:
        for given, completion in row.branches:
            parts = [*tokenizer(row.prefix)["input_ids"], *(tokenizer(given)["input_ids"] if given else [])]
            assert parts + tokenizer(completion)["input_ids"] == tokenizer(row.prefix + given + completion)["input_ids"]


def test_batches_fill_their_rows_in_random_order(rows, tokenizer, tmp_path):
    pq.write_table(encode_rows(rows, tokenizer), tmp_path / "rows.parquet", row_group_size=100)
    got = list(batches([tmp_path / "rows.parquet"], 4, 0, 0))
    assert (
        got
        == list(batches([tmp_path / "rows.parquet"], 4, 0, 0))
        != list(batches([tmp_path / "rows.parquet"], 4, 0, 1))
    )
    assert sum(map(len, got)) > 0.9 * len(rows)
    for batch in got:
        packed = pack([tree for tree, _ in batch], ROW_WIDTH, predict_prefix=True)
        assert tuple(packed.ids.shape) == (4, ROW_WIDTH)
        assert len(packed.tokens) == sum(len(weights) for _, weights in batch)


def test_schedule():
    short = Phase(1000, lr=1.0, final_lr=0.5, rows_per_batch=1, warmup=100)
    assert [round(schedule(step, short), 6) for step in (0, 99, 500, 1000)] == [0.01, 0.9505, 0.75, 0.5]
    assert phase("branch", 7).final_lr == 0.0


def test_an_interrupted_phase_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "compiled", lambda model: model.model)  # compiling takes longer than the test
    make_tokenizer_small(tmp_path / "tokenizer")
    make_corpus(tmp_path / "tokenizer", tmp_path / "rows.parquet", "trunk", 60, 0.0, 0)
    short = Phase(6, 1e-3, 0.0, 3, warmup=1, checkpoint_every=2)
    run_phase(tmp_path / "tokenizer", [tmp_path / "rows.parquet"], None, short, 1, tmp_path / "whole")

    class Killed(Exception):
        pass

    calls = []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise Killed
        return weighted_loss(*arguments)

    original, pretrain.weighted_loss = pretrain.weighted_loss, dies
    try:
        with pytest.raises(Killed):
            run_phase(tmp_path / "tokenizer", [tmp_path / "rows.parquet"], None, short, 1, tmp_path / "killed")
    finally:
        pretrain.weighted_loss = original
    run_phase(tmp_path / "tokenizer", [tmp_path / "rows.parquet"], None, short, 1, tmp_path / "killed")
    whole, killed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(whole[key], killed[key]) for key in whole)


def make_tokenizer_small(out):
    import popu.nano.build as build

    original, build.TOKENIZER_ROWS = build.TOKENIZER_ROWS, 200
    try:
        make_tokenizer(out)
    finally:
        build.TOKENIZER_ROWS = original
