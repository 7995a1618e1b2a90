"""The packed update against one sequence at a time through PEFT-like plain passes."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from popu.config import Update
from popu.engine.flat import HookedForward
from popu.engine.llama import LlamaForward
from popu.engine.multilora import MultiLora, Segment
from popu.engine.trees import FlatTrees, Tree
from popu.population.adapter import Adapter, LoraConfig, new_adapter
from popu.rl.loss import reference_loss
from popu.rl.mismatch import mismatch
from popu.rl.update import TrainSequence, _micro_batches, update_adapter

TARGETS = ("q_proj", "up_proj")
CODE_O = ("student", "code_o")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    return LlamaForCausalLM(config).requires_grad_(False).eval()


@pytest.fixture(scope="module")
def lora(model):
    return MultiLora(model, TARGETS)


@pytest.fixture(scope="module", params=["hooked", "llama"])
def forward(request, model, lora):
    return HookedForward(model, lora) if request.param == "hooked" else LlamaForward(model)


@pytest.fixture()
def adapter(lora):
    generator = torch.Generator().manual_seed(0)
    fresh = new_adapter(lora.shapes, LoraConfig(2, 4.0, TARGETS), generator)
    factors = {name: (a, torch.randn(b.shape, generator=generator) * 0.2) for name, (a, b) in fresh.factors.items()}
    return Adapter(fresh.config, factors)


def sequences(n=12):
    generator = torch.Generator().manual_seed(3)
    prompts = [(2, 3, 4), (5, 6, 7, 8, 9), (10,)]
    rows = []
    for i in range(n):
        tokens = tuple(torch.randint(2, 40, (1 + i % 5,), generator=generator).tolist())
        advantage = float(torch.randn((), generator=generator))
        kind = ("teacher", "code_f") if i % 3 == 2 else ("student", "code_o")
        rows.append(TrainSequence(prompts[i % 3], tokens, (-1.0,) * len(tokens), advantage, advantage, kind))
    return rows


def silent():
    """A group all of whose advantages are 0."""
    return [TrainSequence((11, 12), (4 + i, 5), (-1.0, -2.0), 1.0, 0.0, ("student", "code_i")) for i in range(4)]


def reference_gradients(model, lora, adapter, rows, cap=None):
    """Gradients of the readable loss, one plain pass a sequence."""
    leaves = {m: tuple(f.clone().requires_grad_() for f in factors) for m, factors in adapter.factors.items()}
    logits, old = [], []
    for row in rows:
        with lora.segments([Segment(len(row.prompt) + len(row.tokens), leaves, adapter.config.scale)]):
            out = model(input_ids=torch.tensor([[*row.prompt, *row.tokens]])).logits[0]
        kept = out[len(row.prompt) - 1 : -1]
        logits.append(kept)
        old.append([float(torch.log_softmax(x, -1)[t]) for x, t in zip(kept.detach(), row.tokens, strict=True)])
    truncated = {} if cap is None else {"engine_log_probs": [r.engine_log_probs for r in rows], "importance_cap": cap}
    loss = reference_loss(logits, [r.tokens for r in rows], old, [r.advantage for r in rows], **truncated)
    loss.backward()
    return loss.item(), {m: tuple(f.grad for f in factors) for m, factors in leaves.items()}


@pytest.mark.parametrize("cap", [None, 0.068], ids=["", "truncated"])  # the engine's -1.0 makes ratios around it
@pytest.mark.parametrize("more", [[], silent()], ids=["", "silent"])
@pytest.mark.parametrize("budget", [64, 100_000])
@pytest.mark.parametrize("recompute", [False, True], ids=["", "recompute"])
def test_one_update_is_adamw_on_the_reference_gradient(model, lora, forward, adapter, budget, more, cap, recompute):
    rows = sequences() + more
    loss, gradients = reference_gradients(model, lora, adapter, rows, cap)
    config = Update(
        learning_rate=1e-2,
        micro_batch_tokens=budget,
        gradient_clip=1e9,
        importance_cap=cap,
        gradient_checkpointing=recompute,
    )
    result = update_adapter(forward, adapter, {}, rows, config, 1.0)
    assert result.metrics[0]["loss"] == pytest.approx(loss, abs=1e-5)
    parameters, flat = [], []
    for module in adapter.factors:
        for factor, gradient in zip(adapter.factors[module], gradients[module], strict=True):
            parameter = torch.nn.Parameter(factor.clone())
            parameter.grad = gradient
            parameters.append(parameter)
    torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.0).step()
    for module in adapter.factors:
        flat += list(result.adapter.factors[module])
    for ours, expected in zip(flat, parameters, strict=True):
        torch.testing.assert_close(ours, expected.detach(), atol=2e-5, rtol=1e-4)


def test_the_mismatch_is_that_of_the_tokens_read_again(model, lora, forward, adapter):
    rows, cap = sequences(), 0.068
    result = update_adapter(forward, adapter, {}, rows + silent(), Update(importance_cap=cap), 1.0)
    assert [row["role"] for row in result.mismatch] == ["student", "teacher"]
    for found in result.mismatch:
        differences = []
        for row in [row for row in rows if row.kind == (found["role"], found["problem_type"])]:
            ids = [*row.prompt, *row.tokens]
            with torch.no_grad(), lora.segments([Segment(len(ids), adapter.factors, adapter.config.scale)]):
                logits = model(input_ids=torch.tensor([ids])).logits[0, len(row.prompt) - 1 : -1]
            differences.append(torch.log_softmax(logits, -1)[range(len(row.tokens)), row.tokens] + 1.0)
        expected = mismatch(torch.cat(differences), cap)
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-4)
        assert 0 < found["cut_share"] < 1


def test_the_gradient_is_clipped_by_its_norm(model, lora, forward, adapter):
    _, gradients = reference_gradients(model, lora, adapter, sequences())
    norm = torch.sqrt(sum(g.square().sum() for pair in gradients.values() for g in pair))
    result = update_adapter(forward, adapter, {}, sequences(), Update(gradient_clip=1e-3), 1.0)
    assert result.metrics[0]["gradient_norm"] == pytest.approx(float(norm), rel=1e-3)


def test_optimizer_state_continues(forward, adapter):
    """Two updates in a row equal two updates with the state through files' tensors."""
    first = update_adapter(forward, adapter, {}, sequences(), Update(learning_rate=1e-2), 1.0)
    assert {float(v) for k, v in first.optimizer.items() if k.endswith("step")} == {1.0}
    second = update_adapter(forward, first.adapter, first.optimizer, sequences(), Update(learning_rate=1e-2), 1.0)
    fresh = update_adapter(forward, first.adapter, {}, sequences(), Update(learning_rate=1e-2), 1.0)
    assert {float(v) for k, v in second.optimizer.items() if k.endswith("step")} == {2.0}
    name = next(iter(adapter.factors))
    assert not torch.equal(second.adapter.factors[name][1], fresh.adapter.factors[name][1])


def test_epochs_take_several_steps_and_the_ratio_moves(forward, adapter):
    result = update_adapter(forward, adapter, {}, sequences(), Update(learning_rate=0.5, epochs=3), 1.0)
    assert {float(v) for k, v in result.optimizer.items() if k.endswith("step")} == {3.0}
    assert result.metrics[0]["clip_share"] > 0
    once = update_adapter(forward, adapter, {}, sequences(), Update(learning_rate=0.5), 1.0)
    for name in ("engine_mismatch", "entropy"):  # of the policy that the engine sampled from
        assert [row[name] for row in result.metrics] == [row[name] for row in once.metrics]


def test_no_sequences_change_nothing(forward, adapter):
    result = update_adapter(forward, adapter, {}, [], Update(), 1.0)
    assert result.metrics == [] and result.optimizer == {}
    for name, factors in adapter.factors.items():
        assert all(torch.equal(x, y) for x, y in zip(result.adapter.factors[name], factors, strict=True))


def test_silent_prompts_are_measured_and_the_momentum_goes_on(forward, adapter):
    config = Update(learning_rate=1e-2, epochs=2)
    first = update_adapter(forward, adapter, {}, sequences(), config, 1.0)
    [row] = update_adapter(forward, first.adapter, first.optimizer, silent(), config, 1.0).metrics
    assert (row["n_sequences"], row["loss"], row["gradient_norm"], row["clip_share"]) == (4, 0.0, 0.0, 0.0)
    assert row["entropy"] == 1.5 and row["engine_mismatch"] is None and row["kl_to_base"] is None
    after = update_adapter(forward, first.adapter, first.optimizer, silent(), config, 1.0)
    assert {float(v) for k, v in after.optimizer.items() if k.endswith("step")} == {4.0}
    name = next(iter(adapter.factors))
    assert not torch.equal(after.adapter.factors[name][1], first.adapter.factors[name][1])


def test_the_adapter_is_not_modified_and_kl_is_zero_for_a_fresh_one(lora, forward):
    fresh = new_adapter(lora.shapes, LoraConfig(2, 4.0, TARGETS), torch.Generator().manual_seed(0))
    result = update_adapter(forward, fresh, {}, sequences(), Update(learning_rate=1e-2), 1.0)
    assert all(row["kl_to_base"] == pytest.approx(0.0, abs=1e-6) for row in result.metrics)
    assert {(row["role"], row["problem_type"]) for row in result.metrics} == {
        ("student", "code_o"),
        ("teacher", "code_f"),
    }
    assert all(not b.any() for _, b in fresh.factors.values())


def test_a_rewarded_completion_becomes_likelier(model, lora, forward, adapter):
    good = TrainSequence((2, 3), (4, 5), (-1.0, -1.0), 1.0, 1.0, ("student", "code_o"))
    bad = TrainSequence((2, 3), (6, 7), (-1.0, -1.0), -1.0, -1.0, ("student", "code_o"))

    def log_prob(which, adapter):
        with torch.no_grad(), lora.segments([Segment(4, adapter.factors, adapter.config.scale)]):
            logits = model(input_ids=torch.tensor([[*which.prompt, *which.tokens]])).logits[0, 1:-1]
        return float(torch.log_softmax(logits, -1)[range(2), which.tokens].sum())

    after = update_adapter(forward, adapter, {}, [good, bad], Update(learning_rate=1e-2), 1.0).adapter
    assert log_prob(good, after) > log_prob(good, adapter)
    assert log_prob(bad, after) < log_prob(bad, adapter)


def test_a_prompt_beyond_the_budget_is_split_with_equal_results(lora, forward, adapter):
    """Gradients and metrics, the KL to the base included; no sequence is lost, and no pass is beyond the budget."""
    long = [TrainSequence((2,) * 40, (5 + i, *range(4, 24)), (-1.0,) * 21, 1.0, 0.5 - i, CODE_O) for i in range(5)]
    split = _micro_batches(long, 90)
    assert sorted(tree.n_tokens for [(tree, _)] in split) == [61, 82, 82]
    assert sorted(s.tokens for [(_, part)] in split for s in part) == sorted(s.tokens for s in long)
    assert [len(batch) for batch in _micro_batches(long, 64)] == [1] * 5, "one completion is never split"
    results = [
        update_adapter(forward, adapter, {}, long, Update(micro_batch_tokens=n, gradient_clip=1e9), 1.0)
        for n in (10_000, 90, 64)
    ]
    for result in results[1:]:
        for key, value in results[0].metrics[0].items():
            expected = value if isinstance(value, str) else pytest.approx(value, rel=1e-4, abs=1e-6)
            assert result.metrics[0][key] == expected, key
        for name, moments in results[0].optimizer.items():
            torch.testing.assert_close(result.optimizer[name], moments, atol=1e-7, rtol=1e-3)


def test_recomputed_layers_keep_their_inputs_alone(lora, forward, adapter):
    """What autograd holds between the passes shrinks to far less than half."""
    tree = FlatTrees([Tree(range(30), [range(20)] * 4)])

    def held(recompute):
        factors = {m: tuple(f.clone().requires_grad_() for f in pair) for m, pair in adapter.factors.items()}
        kept = {}

        def keep(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            segments = [Segment(len(tree.ids), factors, 2.0)]
            forward.states(tree.ids, tree.positions, segments, tree.attention, recompute)
        return sum(kept.values())

    assert held(True) < 0.5 * held(False)


def test_a_bfloat16_base_trains_float32_adapters(adapter):
    """Adapters and moments stay float32, and the loss of rewarded completions falls."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=1
    )
    base = LlamaForCausalLM(config).to(torch.bfloat16).requires_grad_(False).eval()
    good = [TrainSequence((2, 3), (4, 5 + i, 6), (-1.0,) * 3, 1.0, 1.0, CODE_O) for i in range(4)]
    tree = FlatTrees([Tree((2, 3), [sequence.tokens for sequence in good])])

    def loss(forward, now):
        with torch.no_grad():
            segments = [Segment(len(tree.ids), now.factors, now.config.scale)]
            states = forward.states(tree.ids, tree.positions, segments, tree.attention)
        return float(torch.nn.functional.cross_entropy(forward.logits(states[tree.sources]), tree.tokens))

    settings = Update(learning_rate=0.1, gradient_checkpointing=True)
    for forward in (LlamaForward(base), HookedForward(base, MultiLora(base, TARGETS))):
        now, state, losses = adapter, {}, [loss(forward, adapter)]
        for _ in range(8):
            result = update_adapter(forward, now, state, good, settings, 1.0)
            now, state = result.adapter, result.optimizer
            losses.append(loss(forward, now))
        tensors = [f for pair in now.factors.values() for f in pair] + list(state.values())
        assert {tensor.dtype for tensor in tensors} == {torch.float32}
        assert losses[-1] < losses[4] - 0.02 < losses[0] - 0.04, losses
