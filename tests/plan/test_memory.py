"""The plan's memory against tensors that the engine really keeps."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from popu.config import Engine, Lora, Training, Vllm
from popu.engine.llama import Adapters, LlamaForward
from popu.engine.multilora import MultiLora, Segment
from popu.engine.trees import FlatTrees, Tree
from popu.plan.memory import (
    Batch,
    activation_bytes,
    decoded_together,
    memory,
    scores_bytes,
    sequences_at_once,
    slab_tokens,
    update_batch,
)
from popu.plan.shape import KNOWN, Shape, adapter_parameters, fused_parameters
from popu.population.adapter import LoraConfig, new_adapter

RANK = 4
SMALL = Shape(64, 3, 4, 2, 16, 160, 900, True, ("q_proj", "k_proj", "v_proj"))


def forward_of(dtype):
    """A random base of `SMALL` and a fresh adapter's factors, trainable."""
    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=SMALL.hidden,
        num_hidden_layers=SMALL.n_layers,
        num_attention_heads=SMALL.n_heads,
        num_key_value_heads=SMALL.n_kv_heads,
        intermediate_size=SMALL.intermediate,
        vocab_size=SMALL.vocab,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config).to(dtype).requires_grad_(False)
    lora = MultiLora(model, Lora().targets)
    adapter = new_adapter(lora.shapes, LoraConfig(RANK, 8, Lora().targets), torch.Generator().manual_seed(0))
    factors = {name: (a.requires_grad_(), b.requires_grad_()) for name, (a, b) in adapter.factors.items()}
    return model, LlamaForward(model), factors


def kept_bytes(dtype, prompt, group, new):
    """What autograd keeps of one prompt with its completions, the base's own weights left out."""
    model, forward, factors = forward_of(dtype)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tree = FlatTrees([Tree(range(prompt), [range(new)] * group)])
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward.states(tree.ids, tree.positions, [Segment(len(tree.ids), factors, 2.0)], tree.attention)
    return sum(kept.values()), len(tree.ids)


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_activations_are_what_autograd_keeps(dtype, width):
    short, _ = kept_bytes(dtype, 300, 0, 0)
    long, _ = kept_bytes(dtype, 600, 0, 0)
    each = (long - short) / 300 / SMALL.n_layers
    assert activation_bytes(SMALL, RANK, width) == pytest.approx(each, rel=0.02)


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2)])
@pytest.mark.parametrize(("prompt", "group", "new"), [(300, 8, 60), (600, 8, 120), (600, 4, 120)])
def test_a_prompt_with_its_completions_is_what_autograd_keeps(dtype, width, prompt, group, new):
    kept, read = kept_bytes(dtype, prompt, group, new)
    transient = width * SMALL.n_heads * 2 * (prompt + new)  # of one layer, kept by none
    scores = scores_bytes(SMALL, prompt + new, width, False) - transient
    planned = read * SMALL.n_layers * activation_bytes(SMALL, RANK, width) + group * new * scores
    assert planned == pytest.approx(kept, rel=0.03)


def test_fused_adapters_are_those_of_the_forward_pass():
    _, forward, factors = forward_of(torch.float32)
    adapters = Adapters([Segment(1, factors, 2.0)], forward.layers)
    found = sum(a.numel() + b.numel() for a, b in adapters.products.values())
    assert fused_parameters(SMALL, Lora(rank=RANK)) == found


def test_the_largest_batches():
    training = Training.model_validate({"sampling": {"context": 14_240, "max_new_tokens": 8096}})
    assert update_batch(training) == Batch(14_240, 8096, 14_240), "one completion is never split"
    wide = training.model_copy(update={"update": training.update.model_copy(update={"micro_batch_tokens": 40_000})})
    assert update_batch(wide) == Batch(40_000, round(40_000 * 4 * 8096 / (6144 + 4 * 8096)), 14_240)
    assert decoded_together(training, Engine(max_batch_rows=20)) == (20, 5)
    assert decoded_together(training, Engine(max_batch_rows=1)) == (8, 1)  # a group is never split
    small = Training.model_validate({"sampling": {"context": 20, "max_new_tokens": 10}})
    assert update_batch(small).read == 2048
    assert [slab_tokens(n) for n in (1, 17, 18, 8096)] == [16, 16, 48, 12_288]


def test_the_peak_is_the_larger_of_both_phases():
    m = memory(KNOWN["qwen2.5-coder-0.5b"], Training(), Engine(dtype="bfloat16"))
    assert m.weights == 2 * 494_032_768
    assert m.peak == m.weights + m.adapters + max(m.generate, m.update)


def vllm(**values) -> Engine:
    return Engine(kind="vllm", dtype="bfloat16", max_batch_rows=4, vllm=Vllm(max_loras=2, **values))


def test_what_lies_on_a_device():
    shape, own = KNOWN["qwen2.5-coder-0.5b"], Training.model_validate({"update": {"device": "cuda"}})
    there = memory(shape, own, Engine(dtype="bfloat16"), 24)
    assert there.generate == 0 and there.peak == there.weights + there.update, "transformers generates on the CPU"
    assert memory(shape, Training(), Engine(dtype="bfloat16"), 24).peak == 0
    generating = memory(shape, Training(), vllm(), 24)
    assert generating.weights == generating.update == 0 and generating.peak == generating.generate


def test_vllm_takes_its_share_and_gives_it_back_asleep():
    """Rank 8 has room for 8; of 3 slots, one is the bare base's. The cache is what the share leaves."""
    shape, training = KNOWN["qwen2.5-coder-0.5b"], Training.model_validate({"update": {"device": "cuda"}})
    awake = memory(shape, training, vllm(memory_fraction=0.5), 24)
    asleep = memory(shape, training, vllm(memory_fraction=0.5, sleep=True), 24)
    assert awake.generate == pytest.approx(12e9, abs=1)
    assert awake.slots == 2 * 3 * adapter_parameters(shape, training.lora)
    assert awake.sequence == 32_768 * 2 * 2 * 24 * 2 * 64
    assert awake.peak == awake.weights + awake.generate + awake.update
    assert asleep.peak == asleep.weights + max(asleep.generate, asleep.update)
    stated = memory(shape, training, vllm(cache_gb=1, context=100), 24)
    assert (stated.cache, stated.sequence) == (2**30, 100 * 2 * 2 * 24 * 2 * 64)
    halves = memory(shape, training, vllm(memory_fraction=0.5, tensor_parallel=2), 24)
    assert (halves.engine_weights, halves.sequence) == (awake.engine_weights // 2, awake.sequence // 2)
    assert memory(shape, training, vllm(memory_fraction=0.05), 24).cache == 0


def test_vllm_decodes_as_many_as_its_cache_holds():
    shape, engine = KNOWN["qwen2.5-coder-0.5b"], vllm(cache_gb=1)
    found = memory(shape, Training(), engine, 24)
    assert sequences_at_once(shape, engine, found, 100) == 4
    assert sequences_at_once(shape, engine, found, 2**30 / (2 * 2 * 24 * 2 * 64) / 2.5) == pytest.approx(2.5)
