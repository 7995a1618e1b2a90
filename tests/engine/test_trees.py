import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from popu.engine.flat import HookedForward
from popu.engine.llama import is_llama_shaped
from popu.engine.multilora import MultiLora, Segment
from popu.engine.trees import FlatTrees, Tree
from popu.errors import ConfigError

TREES = [
    Tree([2, 3, 4], [[5, 6], [7], [8, 9, 10]]),
    Tree([11], [[12, 13, 14, 15]]),
    Tree([16, 17, 18, 19, 20, 21], []),
    Tree([2, 3], [[4], [5]]),
]


@pytest.mark.parametrize("trees", [TREES, TREES[1:2], TREES[2:], TREES[2:3]])
def test_flat_trees_have_the_logits_of_their_sequences(model, lora, forward, adapters, trees):
    adapter = adapters["m0@00001"]
    flat = FlatTrees(trees)
    segments = [Segment(len(flat.ids), adapter.factors, adapter.config.scale)]
    expected = [torch.empty(0, 50)]
    ends = []
    with torch.no_grad():
        states = forward.states(flat.ids, flat.positions, segments, flat.attention)
        for tree in trees:
            for branch in (*tree.branches, None):
                ids = torch.tensor([[*tree.prefix, *(branch or ())]])
                with lora.segments([Segment(ids.numel(), adapter.factors, adapter.config.scale)]):
                    logits = model(input_ids=ids).logits[0]
                if branch:
                    expected.append(logits[len(tree.prefix) - 1 : -1])
                else:
                    ends.append(logits[-1])
    torch.testing.assert_close(forward.logits(states[flat.sources]), torch.cat(expected), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(forward.logits(states[flat.ends]), torch.stack(ends), atol=2e-5, rtol=1e-4)
    assert flat.tokens.tolist() == [token for tree in trees for branch in tree.branches for token in branch]


def test_segments_must_cover_the_row(forward):
    flat = FlatTrees(TREES)
    with pytest.raises(ValueError, match="tokens, found 3"):
        forward.states(flat.ids, flat.positions, [Segment(3, None)], flat.attention)


def test_the_same_factors_at_another_scale_are_another_adapter(forward, adapters):
    flat = FlatTrees(TREES)
    factors = adapters["m0@00001"].factors
    with torch.no_grad():
        states = [
            forward.states(flat.ids, flat.positions, [Segment(len(flat.ids), factors, scale)], flat.attention)
            for scale in (2.0, 4.0, 2.0)
        ]
    assert torch.equal(states[0], states[2]) and not torch.allclose(states[0], states[1])


def test_a_base_whose_attention_is_not_plain_is_refused():
    config = Gemma2Config(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, head_dim=16
    )
    model = AutoModelForCausalLM.from_config(config).requires_grad_(False).eval()
    assert not is_llama_shaped(model)
    flat = FlatTrees(TREES)
    with pytest.raises(ConfigError, match="softcap"):
        HookedForward(model, MultiLora(model, ("q_proj",))).states(
            flat.ids, flat.positions, [Segment(len(flat.ids), None)], flat.attention
        )


def test_gradients_are_those_of_plain_passes(model, lora, forward, adapters):
    def gradients(loss_of):
        leaves = {
            name: tuple(f.clone().requires_grad_() for f in pair) for name, pair in adapters["m1@00001"].factors.items()
        }
        loss_of(leaves).backward()
        return [f.grad for pair in leaves.values() for f in pair]

    def flat_loss(leaves):
        flat = FlatTrees(TREES[:2])
        states = forward.states(flat.ids, flat.positions, [Segment(len(flat.ids), leaves, 2.0)], flat.attention)
        return torch.nn.functional.cross_entropy(forward.logits(states[flat.sources]), flat.tokens, reduction="sum")

    def plain_loss(leaves):
        losses = []
        for tree in TREES[:2]:
            for branch in tree.branches:
                ids = torch.tensor([[*tree.prefix, *branch]])
                with lora.segments([Segment(ids.numel(), leaves, 2.0)]):
                    logits = model(input_ids=ids).logits[0, len(tree.prefix) - 1 : -1]
                losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(branch), reduction="sum"))
        return torch.stack(losses).sum()

    for ours, theirs in zip(gradients(flat_loss), gradients(plain_loss), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)
