"""Transformers in bfloat16, recorded and played back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.network.playback import BAD, USUAL, WHOLE, Recordings, Rounded, good_length

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def bert(dropout: float = 0.0) -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 99}
    config = BertConfig(**shape, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return BertModel(config, add_pooling_layer=False).train()


def rows(length: int, *, masked: bool = True, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.arange(4 * length).view(4, length) % 98 + 1
    lengths = torch.tensor([length, 1, length // 2, length - 1])
    mask = (torch.arange(length) < lengths[:, None])[:, None, None] | (not masked)
    return numbers.to(device), mask.to(device)


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_a_good_length_is_long_enough_and_fits(longest, most):
    longest = min(longest, most)
    length = good_length(longest, most)
    assert longest <= length <= min(most, longest + 63)
    assert length in (most, BAD) or (length % 32 == 0 and length % WHOLE != BAD)


@pytest.mark.parametrize("masked", [False, True])
def test_rounded_weights_give_nearly_the_same_states_and_gradients_for_the_real_ones(masked):
    model, inputs = bert(), rows(20, masked=masked)
    exact = model(*inputs).last_hidden_state
    rounded = Rounded(model)(*inputs)
    assert rounded.dtype == torch.bfloat16
    assert (rounded - exact).norm() < 0.02 * exact.norm()
    weights = [weight for name, weight in model.named_parameters() if "key.bias" not in name]  # whose gradient is 0
    slopes = torch.randn_like(exact)
    theirs, ours = (torch.autograd.grad((states * slopes).sum(), weights) for states in (exact, rounded))
    for found, expected in zip(ours, theirs, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).norm() <= 0.05 * expected.norm()


@needs_gpu
def test_what_is_played_back_is_what_was_launched():
    model = bert().cuda()
    played = Recordings(model)
    weights = [weight for name, weight in model.named_parameters() if "key.bias" not in name]
    for length, masked in [(32, True), (96, True), (32, False)] * (USUAL + 2):
        inputs = rows(length, masked=masked, device="cuda")
        states = [run(*inputs) for run in (Rounded(model), played)]
        slopes = torch.randn_like(states[0])
        expected, found = ((x.detach().clone(), *torch.autograd.grad((x * slopes).sum(), weights)) for x in states)
        for one, other in zip(found, expected, strict=True):
            assert (one - other).norm() <= 0.02 * other.norm()
    assert len(played.recorded) == 2


@needs_gpu
def test_recording_leaves_the_random_numbers_alone():
    model = bert(dropout=0.5).cuda()
    inputs, drawn = rows(32, device="cuda"), []
    for seen in (0, -USUAL):  # recorded at the end, or not yet
        played = Recordings(model)
        played.seen[inputs[0].shape] = seen
        torch.cuda.manual_seed(3)
        for _ in range(USUAL):
            played(*inputs)
        drawn.append(torch.rand(3, device="cuda"))
    assert torch.equal(*drawn)
