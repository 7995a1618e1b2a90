"""The vLLM engine for real, on a CPU, against PEFT. Needs a Python with vLLM: `make install-vllm`, or POPU_VLLM_PYTHON.

Tolerances, float32 on the embedded base: greedy tokens equal, log-probabilities within 1e-4 (largest found: 2e-5).
"""

import dataclasses
import itertools
import random
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import torch
from peft import PeftModel
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

from popu.config import Base, Engine, Vllm
from popu.engine.protocol import Request
from popu.engine.vllm_engine import VllmEngine
from popu.errors import ArtifactError, ConfigError
from popu.grammar.examples import problems_of, sample_example
from popu.population.adapter import Adapter, LoraConfig, new_adapter, read_adapter, write_adapter
from popu.problems.prompts import solver_prompt

pytestmark = pytest.mark.slow

REPO = Path(__file__).resolve().parents[2]
BASE = Base(path=str(REPO / "resources" / "nano"))
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TOLERANCE = 1e-4
NAMES = tuple(f"s{i}.g0@00001" for i in range(8))


def settings(python, **vllm):
    return Engine(
        kind="vllm", threads=1, max_batch_rows=128, vllm=Vllm(python=python, cache_gb=0.25, eager=True, **vllm)
    )


@pytest.fixture(scope="module")
def engine(vllm_python):
    engine = VllmEngine(BASE, settings(vllm_python), TARGETS, rank=8)
    yield engine
    engine.close()


def adapter_of(engine, seed, scale=0.2):
    """An adapter whose deltas are, at this scale, about as large as the weights."""
    generator = torch.Generator().manual_seed(seed)
    fresh = new_adapter(engine.lora.shapes, LoraConfig(8, 16.0, TARGETS), generator)
    factors = {
        module: (a, torch.randn(b.shape, generator=generator) * scale) for module, (a, b) in fresh.factors.items()
    }
    return Adapter(fresh.config, factors)


@pytest.fixture(scope="module")
def adapters(engine):
    return {name: adapter_of(engine, i) for i, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def peft(adapters, tmp_path_factory):
    """Logits by PEFT, from the adapters' files: a function of token ids and a name (None: the base)."""
    directory = tmp_path_factory.mktemp("peft")
    model = None
    for name, adapter in adapters.items():
        write_adapter(directory / name, adapter, BASE.path, {})
        label = name.replace(".", "_")  # torch allows no dots in a module's name
        if model is None:
            base = AutoModelForCausalLM.from_pretrained(BASE.path, dtype=torch.float32)
            model = PeftModel.from_pretrained(base, str(directory / name), adapter_name=label)
        else:
            model.load_adapter(str(directory / name), adapter_name=label)
    model.eval()

    @torch.no_grad()
    def logits(ids, name):
        if name is None:
            with model.disable_adapter():
                return model(input_ids=torch.tensor([ids])).logits[0]
        model.set_adapter(name.replace(".", "_"))
        return model(input_ids=torch.tensor([ids])).logits[0]

    return logits


def prompt_of(engine, i):
    """The prompt of a solver, on a problem of the grammar."""
    problem = problems_of(sample_example(1 + i, "pretraining", random.Random(i)), "code_o")[0]
    return engine.encode(solver_prompt(problem, "compact"))


def requests(engine, names, n=1, temperature=0.0, new=20, seed=5, programs=3):
    prompts = [prompt_of(engine, i) for i in range(programs)]
    return [
        Request(f"{name}/{i}", prompt, name, n, new, temperature, seed)
        for name in names
        for i, prompt in enumerate(prompts)
    ]


def log_probs(peft, request, tokens):
    """Those of PEFT at the temperature of the request; at temperature 1 where it is greedy."""
    logits = peft([*request.prompt, *tokens], request.adapter)[len(request.prompt) - 1 : -1]
    return torch.log_softmax(logits / (request.temperature or 1.0), -1)[range(len(tokens)), list(tokens)]


def check_log_probs(peft, planned, groups):
    for request, group in zip(planned, groups, strict=True):
        for completion in group:
            expected = log_probs(peft, request, completion.tokens)
            torch.testing.assert_close(torch.tensor(completion.log_probs), expected, atol=TOLERANCE, rtol=0)


def greedy(peft, request, eos):
    tokens = []
    while not tokens or (tokens[-1] not in eos and len(tokens) < request.max_new_tokens):
        tokens.append(int(peft([*request.prompt, *tokens], request.adapter)[-1].argmax()))
    return tuple(tokens)


def test_greedy_tokens_and_log_probs_are_those_of_peft_alone_and_mixed(engine, adapters, peft):
    """scorer-reports 11: outputs under an adapter differed from PEFT's."""
    planned = requests(engine, (None, *NAMES))
    mixed = engine.generate(planned, adapters)
    said = [group[0].tokens for group in mixed]
    assert said == [greedy(peft, request, engine.eos_ids) for request in planned]
    check_log_probs(peft, planned, mixed)
    alone = [engine.generate([r for r in planned if r.adapter == name], adapters) for name in (None, *NAMES)]
    assert [group[0].tokens for groups in alone for group in groups] == said
    check_log_probs(peft, planned, [group for groups in alone for group in groups])
    behind = engine.generate(planned[::-1], adapters)[::-1]  # other slots, other neighbours
    assert [group[0].tokens for group in behind] == said
    by_name = {name: said[3 * i : 3 * i + 3] for i, name in enumerate((None, *NAMES))}
    for one, other in itertools.combinations(by_name, 2):  # the deltas are large enough to tell who spoke
        assert by_name[one] != by_name[other]


def test_finish_reasons_are_those_of_the_transformers_engine(engine):
    adapters = {f"s{i}": adapter_of(engine, i, scale=0.01) for i in range(4)}  # still near the base, which ends
    planned = [
        dataclasses.replace(request, max_new_tokens=length)
        for length in (2, 40)
        for request in requests(engine, (None, *adapters))
    ]
    ours = super(VllmEngine, engine).generate(planned, adapters)
    theirs = engine.generate(planned, adapters)
    assert [(c.tokens, c.finish_reason) for (c,) in theirs] == [(c.tokens, c.finish_reason) for (c,) in ours]
    assert {c.finish_reason for (c,) in theirs} == {"stop", "length"}
    for request, (completion,) in zip(planned, theirs, strict=True):
        ends = [token in engine.eos_ids for token in completion.tokens]
        assert ends == [False] * (len(ends) - 1) + [completion.finish_reason == "stop"]
        assert completion.finish_reason == "stop" or len(ends) == request.max_new_tokens


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_log_probs_are_those_of_the_sampling_distribution(engine, adapters, peft, temperature):
    planned = requests(engine, (None, *NAMES[:3]), n=3, temperature=temperature)
    check_log_probs(peft, planned, engine.generate(planned, adapters))


def test_tokens_are_drawn_from_the_distribution(engine, adapters, peft):
    """4,000 tokens after one prompt against PEFT's probabilities; rare tokens are counted together."""
    for name, temperature in ((None, 1.0), (NAMES[0], 0.7)):
        request = Request("r", engine.encode("def f(x):\n    return "), name, 4000, 1, temperature, 5)
        p = torch.softmax(peft(request.prompt, name)[-1].double() / temperature, -1)
        (drawn,) = engine.generate([request], adapters)
        counts = torch.bincount(torch.tensor([c.tokens[0] for c in drawn]), minlength=len(p)).double()
        common = p * request.n >= 5
        assert common.sum() >= 3
        found = torch.cat([counts[common], counts[~common].sum()[None]])
        expected = torch.cat([p[common], p[~common].sum()[None]]) * request.n
        assert chisquare(found.numpy(), expected.numpy()).pvalue > 1e-3


def test_a_completion_depends_on_its_seed_and_on_nothing_beside_it(engine, adapters):
    planned = requests(engine, (None, *NAMES[:3]), n=4, temperature=1.0)
    first = engine.generate(planned, adapters)
    assert engine.generate(planned, adapters) == first
    assert all(len({c.tokens for c in group}) > 1 for group in first)
    tokens = [[c.tokens for c in group] for group in first]
    fewer = engine.generate([dataclasses.replace(r, n=2) for r in planned[::-1]], adapters)[::-1]
    assert [[c.tokens for c in group] for group in fewer] == [group[:2] for group in tokens]
    other = engine.generate([dataclasses.replace(r, seed=6) for r in planned], adapters)
    assert [[c.tokens for c in group] for group in other] != tokens


def test_new_weights_under_an_old_name_never_mix_with_old(engine, adapters, peft):
    """The prompt fills blocks of the prefix cache (of 32 tokens), so a stale one would be found."""
    prompt = prompt_of(engine, 3) * 5
    assert len(prompt) > 128
    for version in NAMES[:4]:
        group = engine.generate([Request("r", prompt, "s0", 2, 16, 0.0, 1)], {"s0": adapters[version]})
        true = Request("r", prompt, version, 2, 16, 0.0, 1)
        assert [c.tokens for c in group[0]] == [greedy(peft, true, engine.eos_ids)] * 2
        check_log_probs(peft, [true], group)


def test_more_adapters_than_slots_take_turns(engine, adapters, peft):
    """Eight slots and one for the base: two calls' worth of names in one call."""
    twice = adapters | {f"{name}'": adapter for name, adapter in adapters.items()}
    planned = requests(engine, twice, programs=1)
    true = [dataclasses.replace(r, adapter=r.adapter.rstrip("'")) for r in planned]
    groups = engine.generate(planned, twice)
    assert [group[0].tokens for group in groups] == [greedy(peft, r, engine.eos_ids) for r in true]


def test_adapters_with_renamed_missing_or_misshapen_tensors_are_refused(engine, adapters, tmp_path):
    good = adapters[NAMES[0]]
    module = "model.layers.2.self_attn.q_proj"
    without = {name: pair for name, pair in good.factors.items() if name != module}
    wrong = {
        "a module of the base's": without | {module.replace("layers.2", "layers.7"): good.factors[module]},
        "in their shapes": good.factors | {module: (good.factors[module][0][:, :-1], good.factors[module][1])},
        "found no model.layers.2.self_attn.q_proj": without,
    }
    for expected, factors in wrong.items():
        (request,) = requests(engine, ("bad",), programs=1)
        message = "modules of the base" if "a module" in expected else expected
        with pytest.raises(ArtifactError, match=message):
            engine.generate([request], {"bad": Adapter(good.config, factors)})
    write_adapter(tmp_path / "a", good, "", {})
    config = (tmp_path / "a" / "adapter_config.json").read_text()
    (tmp_path / "a" / "adapter_config.json").write_text(config.replace('"use_dora": false', '"use_dora": true'))
    with pytest.raises(ValueError, match="use_dora"):
        read_adapter(tmp_path / "a")


def test_what_vllm_refuses_is_one_message_and_the_engine_goes_on(engine, adapters):
    fine = requests(engine, (NAMES[0],))
    before = engine.generate(fine, adapters)
    shapes = engine.lora.shapes
    high = new_adapter(shapes, LoraConfig(16, 16.0, TARGETS), torch.Generator().manual_seed(0))
    with pytest.raises(ArtifactError, match="rank 16 is greater than max_lora_rank 8"):
        engine.generate(requests(engine, ("high",)), {"high": high})
    with pytest.raises(ArtifactError, match="found: .*maximum context length is 1024"):
        engine.generate([*fine, Request("r", (2,) * 1025, NAMES[0], 1, 4, 0.0, 1)], adapters)
    with pytest.raises(ConfigError, match="temperature: vLLM expects 0 or at least 0.01, found 0.001"):
        engine.generate(requests(engine, (None,), temperature=0.001), {})
    assert engine.generate(fine, adapters) == before


class Gone(Exception):
    pass


def test_a_cancelled_call_ends_at_once_and_the_next_is_whole(engine, adapters):
    planned = requests(engine, (None, *NAMES), n=2, temperature=1.0)
    before = engine.generate(planned, adapters)
    polls = itertools.count()

    def check():
        if next(polls) == 2:
            raise Gone

    with pytest.raises(Gone):
        engine.generate([dataclasses.replace(r, n=100) for r in planned], adapters, check)
    assert engine.generate(planned, adapters) == before


def test_200_versions_in_a_row_do_not_grow_host_memory(engine, tmp_path, monkeypatch):
    """Adapters of 0.4 MB: keeping 150 of them would be 60 MB."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = psutil.Process(engine._replicas[0].process.pid)
    (request,) = requests(engine, ("s0",), programs=1, new=1)
    used = {}
    for version in range(200):
        engine.generate([request], {"s0": adapter_of(engine, version)})
        used[version] = process.memory_info().rss / 1e6
    print(f"resident MB after 50 versions {used[49]:.1f}, after 200 {used[199]:.1f}")
    assert used[199] - used[49] < 15
    assert not list(tmp_path.iterdir())


def test_a_dead_vllm_is_one_message_and_starts_anew(engine, adapters):
    planned = requests(engine, (NAMES[0],))
    before = engine.generate(planned, adapters)
    engine._replicas[0].process.kill()
    with pytest.raises(RuntimeError, match="vLLM died"):
        engine.generate(planned, adapters)
    assert engine.generate(planned, adapters) == before


def test_two_copies_say_the_same_and_end(vllm_python, engine, adapters):
    planned = requests(engine, (None, *NAMES), n=2, temperature=1.0)
    copies = VllmEngine(BASE, settings(vllm_python, data_parallel=2), TARGETS, rank=8)
    try:
        assert copies.generate(planned, adapters) == engine.generate(planned, adapters)
        assert copies.generate(planned[:1], adapters) == engine.generate(planned[:1], adapters)  # one has nothing to do
        pids = [replica.process.pid for replica in copies._replicas]
    finally:
        copies.close()
    assert len(set(pids)) == 2 and not any(psutil.pid_exists(pid) for pid in pids)


def test_a_vllm_that_does_not_start_is_one_message(vllm_python):
    for wrong, message in (
        (settings(vllm_python, sleep=True), "Sleep mode is not supported"),  # on a CPU
        (settings(sys.executable), "No module named 'vllm'"),
        (settings("/absent"), "expected an interpreter, found: .*absent"),
    ):
        with pytest.raises(ConfigError, match=f"(?s)^engine.*{message}"):
            VllmEngine(BASE, wrong, TARGETS, 8).generate([Request("r", (2,), None, 1, 1, 0.0, 1)], {})
