"""The GRU in one kernel, beside torch's own."""

import os

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and "TRITON_INTERPRET" not in os.environ, reason="no GPU, and no interpreter"
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def made(inputs: int, units: int) -> nn.GRU:
    torch.manual_seed(1)
    layer = nn.GRU(inputs, units, batch_first=True, bidirectional=True)
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.3)
    return layer.to(DEVICE)


def packed(layer: nn.GRU, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    words = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(layer(words)[0], batch_first=True, total_length=inputs.shape[1])[0]


@pytest.mark.parametrize(("units", "batch", "length"), [(5, 3, 7), (16, 18, 4), (50, 17, 9), (64, 2, 5)])
def test_states_and_gradients_are_those_of_the_packed_layer(units, batch, length):
    from labelwise.network.gru_cuda import fits, run

    layer = made(6, units)
    assert fits(layer)
    inputs = torch.randn(batch, length, 6, device=DEVICE, requires_grad=True)
    lengths = torch.randint(1, length + 1, (batch,), device=DEVICE)
    lengths[0] = length
    slopes, wanted = torch.randn(batch, length, 2 * units, device=DEVICE), [inputs, *layer.parameters()]
    expected, found = packed(layer, inputs, lengths), run(layer, inputs, lengths)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    theirs, ours = (torch.autograd.grad((states * slopes).sum(), wanted) for states in (expected, found))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter is too slow for it")
def test_wide_layers_are_as_near_to_float32_as_those_of_torch_are():
    from labelwise.network.gru_cuda import run

    layer, lengths = made(20, 100), torch.tensor([60, 7, 33], device=DEVICE)
    inputs, slopes = torch.randn(3, 60, 20, device=DEVICE), torch.randn(3, 60, 200, device=DEVICE)
    exact = packed(layer, inputs, lengths)
    wanted = torch.autograd.grad((exact * slopes).sum(), list(layer.parameters()))
    with torch.autocast("cuda", torch.bfloat16):
        found, theirs = run(layer, inputs, lengths).float(), packed(layer, inputs, lengths).float()
    ours = torch.autograd.grad((found * slopes).sum(), list(layer.parameters()))
    assert (found - exact).abs().max() < 2 * (theirs - exact).abs().max()
    for one, other in zip(ours, wanted, strict=True):
        assert (one - other).norm() < 0.03 * other.norm()


def test_a_document_without_words_has_states_of_zero():
    from labelwise.network.gru_cuda import run

    assert not run(made(6, 5), torch.randn(2, 3, 6, device=DEVICE), torch.tensor([0, 3], device=DEVICE))[0].any()


def test_wide_layers_and_other_cells_are_left_to_others():
    from labelwise.network.gru_cuda import WIDEST, fits

    assert not fits(nn.GRU(4, WIDEST + 1, bidirectional=True))
    assert not fits(nn.LSTM(4, 4, bidirectional=True))
    assert not fits(nn.GRU(4, 4))
