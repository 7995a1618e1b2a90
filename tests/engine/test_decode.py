import numpy as np
import pytest
import torch

from popu.engine.decode import Decoder, decode_reference, sample_tokens
from popu.engine.protocol import Request


def requests(adapters, n=3, temperature=1.0):
    names = [None, *adapters]
    rng = np.random.default_rng(0)
    return [
        Request(
            f"r{i}",
            tuple(int(t) for t in rng.integers(2, 50, size=rng.integers(2, 14))),
            names[i % len(names)],
            n,
            int(rng.integers(3, 20)),
            temperature,
            7,
        )
        for i in range(11)
    ]


@pytest.mark.parametrize("temperature", [1.0, 0.0])
@pytest.mark.parametrize("max_rows", [4, 1000])
def test_equals_the_reference(model, lora, forward, adapters, temperature, max_rows):
    wanted = requests(adapters, temperature=temperature)
    decoder = Decoder(forward, [1], max_rows)
    for request, got in zip(wanted, decoder.generate(wanted, adapters), strict=True):
        adapter = adapters[request.adapter] if request.adapter else None
        expected = decode_reference(model, lora, [1], request, adapter)
        assert [c.tokens for c in got] == [c.tokens for c in expected]
        assert [c.finish_reason for c in got] == [c.finish_reason for c in expected]
        for ours, theirs in zip(got, expected, strict=True):
            np.testing.assert_allclose(ours.log_probs, theirs.log_probs, atol=1e-4)


def test_a_result_does_not_depend_on_the_rest_of_the_batch(forward, adapters):
    decoder = Decoder(forward, [1], 1000)
    wanted = requests(adapters)
    together = decoder.generate(wanted, adapters)
    for i in (0, 4, 10):
        alone = decoder.generate([wanted[i]], adapters)[0]
        assert [c.tokens for c in alone] == [c.tokens for c in together[i]]


def test_stop_ends_with_eos_and_length_does_not(forward, adapters):
    completions = [c for group in Decoder(forward, [1], 99).generate(requests(adapters, 8), adapters) for c in group]
    assert {c.finish_reason for c in completions} == {"stop", "length"}
    for completion in completions:
        assert (completion.tokens[-1] == 1) == (completion.finish_reason == "stop")
        assert 1 not in completion.tokens[:-1]
        assert len(completion.tokens) == len(completion.log_probs)


def test_check_can_cancel(forward, adapters):
    class Stop(Exception):
        pass

    def check():
        raise Stop

    with pytest.raises(Stop):
        Decoder(forward, [1], 99).generate(requests(adapters), adapters, check)


def test_samples_follow_the_distribution():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25, 0.0]])).expand(4000, -1)
    uniforms = torch.rand(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens, log_probs = sample_tokens(logits, torch.ones(4000), uniforms)
    shares = torch.bincount(tokens, minlength=4) / 4000
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.25, 0.25, 0.0]), atol=0.03, rtol=0)
    torch.testing.assert_close(log_probs.exp(), torch.tensor([0.5, 0.25, 0.25, 0.0])[tokens])


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_a_token_of_probability_zero_is_never_drawn(uniform):
    logits = torch.tensor([[float("-inf"), 0.0, 0.0, float("-inf")]])
    token, _ = sample_tokens(logits, torch.ones(1), torch.tensor([uniform], dtype=torch.float64))
    assert token.item() in (1, 2)
