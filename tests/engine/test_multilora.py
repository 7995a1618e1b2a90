import pytest
import torch
from peft import PeftModel

from popu.engine.multilora import MultiLora, Segment
from popu.population.adapter import write_adapter


def test_every_segment_has_the_logits_of_peft(model, lora, adapters, tmp_path):
    import copy

    ids = torch.randint(2, 50, (6, 9), generator=torch.Generator().manual_seed(0))
    names = list(adapters)
    segments = [Segment(18, adapters[name].factors, adapters[name].config.scale) for name in names[:2]]
    with torch.no_grad(), lora.segments([*segments, Segment(18, None)]):
        ours = model(input_ids=ids).logits
    bare = copy.deepcopy(model)  # hooks of the copy belong to no active segment
    for i, name in enumerate(names[:2]):
        write_adapter(tmp_path / name, adapters[name], "base", {})
        with torch.no_grad():
            theirs = PeftModel.from_pretrained(copy.deepcopy(model), tmp_path / name)(input_ids=ids).logits
        rows = slice(2 * i, 2 * i + 2)
        torch.testing.assert_close(ours[rows], theirs[rows], atol=1e-5, rtol=1e-4)
        assert (ours[rows] - bare(input_ids=ids).logits[rows]).abs().max() > 0.01
    with torch.no_grad():
        torch.testing.assert_close(ours[4:], model(input_ids=ids).logits[4:], atol=1e-6, rtol=1e-5)


def test_without_segments_the_model_is_bare(model, lora, adapters):
    ids = torch.arange(2, 12)[None]
    before = model(input_ids=ids).logits
    with lora.segments([Segment(10, adapters["m0@00001"].factors, 2.0)]):
        model(input_ids=ids)
    assert torch.equal(model(input_ids=ids).logits, before)


def test_segments_must_cover_the_batch(model, lora):
    with pytest.raises(ValueError, match="expected 12 tokens, found 2"), lora.segments([Segment(2, None)]):
        model(input_ids=torch.ones(3, 4, dtype=torch.long))


def test_unknown_target_is_named(model):
    with pytest.raises(ValueError, match="'qq_proj'"):
        MultiLora(model, ("q_proj", "qq_proj"))
