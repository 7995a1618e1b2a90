import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from popu.engine.trees import Tree
from popu.nano.packing import pack


@pytest.fixture()
def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2))


@pytest.mark.parametrize("width", [0, 12, 40])
def test_a_packed_tree_has_the_logits_of_its_sequences(model, width):
    trees = [Tree([2, 3, 4], [[5, 6], [7], [8, 9, 10]]), Tree([11], [[12, 13, 14, 15]])]
    packed = pack(trees, width)
    assert packed.n_rows == (1 if width == 40 else 2)
    with torch.no_grad():
        states = model.model(
            input_ids=packed.ids, attention_mask=packed.mask, position_ids=packed.positions
        ).last_hidden_state
        logits = model.lm_head(states[packed.rows, packed.sources])
        expected = []
        for tree in trees:
            for branch in tree.branches:
                sequence = model(input_ids=torch.tensor([[*tree.prefix, *branch]])).logits[0]
                expected.append(sequence[len(tree.prefix) - 1 : -1])
    torch.testing.assert_close(logits, torch.cat(expected), atol=1e-5, rtol=1e-4)
    assert packed.tokens.tolist() == [5, 6, 7, 8, 9, 10, 12, 13, 14, 15]


def test_an_empty_branch_adds_nothing():
    packed = pack([Tree([2, 3], [[], [4]])])
    assert packed.tokens.tolist() == [4] and packed.sources.tolist() == [1]
