"""Label-wise attention against its plain formulation, which builds a vector per label and document."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from labelwise.network import attention
from labelwise.network.attention import attend, attend_loss, attention_weights

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
needs_kernels = pytest.mark.skipif(
    not torch.cuda.is_available() and "TRITON_INTERPRET" not in os.environ, reason="no GPU, and no interpreter"
)


def plain(keys, values, query, output, lengths):
    rows = []
    for document, length in enumerate(lengths.tolist()):
        weights = (query @ keys[document, :length].T).softmax(-1)  # (labels, length)
        rows.append((weights @ values[document, :length] * output).sum(-1))
    return torch.stack(rows)


def plain_loss(keys, values, query, output, bias, lengths, targets):
    logits = plain(keys, values, query, output, lengths) + bias
    return binary_cross_entropy_with_logits(logits, targets)


def draw(lengths, labels=5, key_width=3, width=4, longest=None, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    batch, longest = len(lengths), longest or max(lengths) + 1
    shapes = ((batch, longest, key_width), (batch, longest, width), (labels, key_width), (labels, width))
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]
    return [*tensors, torch.tensor(lengths)]


def gradients(result, inputs):
    return torch.autograd.grad(result, [x for x in inputs if x.requires_grad])


@pytest.fixture(params=[3, 1024])
def tile(request, monkeypatch):
    """Tiles smaller than every toy, and larger."""
    monkeypatch.setattr(attention, "TILE", request.param)


@pytest.mark.usefixtures("tile")
def test_logits_and_gradients_are_those_of_the_plain_formulation():
    inputs = draw([4, 0, 1, 7, 2], labels=8)
    arriving = torch.randn(5, 8, dtype=torch.float64)
    torch.testing.assert_close(attend(*inputs), plain(*inputs))
    torch.testing.assert_close(
        gradients(attend(*inputs).mul(arriving).sum(), inputs), gradients(plain(*inputs).mul(arriving).sum(), inputs)
    )


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.integers(1, 7),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 99),
)
def test_any_shape_gives_the_plain_logits(lengths, labels, key_width, width, seed):
    inputs = draw(lengths, labels, key_width, width, seed=seed)
    torch.testing.assert_close(attend(*inputs), plain(*inputs))


@pytest.mark.usefixtures("tile")
def test_the_gradient_is_the_numerical_one():
    *inputs, lengths = draw([3, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda *x: attend(*x, lengths), inputs)


@pytest.mark.usefixtures("tile")
def test_the_loss_in_one_pass_is_the_plain_loss():
    *inputs, lengths = draw([4, 0, 1, 7, 2], labels=8)
    bias = torch.randn(8, dtype=torch.float64, requires_grad=True)
    targets = (torch.arange(40).view(5, 8) % 3 == 0).double()
    ours = attend_loss(*inputs, bias, lengths, targets) * 7
    theirs = plain_loss(*inputs, bias, lengths, targets) * 7
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours, [*inputs, bias]), gradients(theirs, [*inputs, bias]))
    with torch.no_grad():
        torch.testing.assert_close(attend_loss(*inputs, bias, lengths, targets) * 7, theirs)


def test_a_document_without_words_has_logits_0_and_no_gradient():
    inputs = draw([0, 3, 0])
    logits = attend(*inputs)
    assert (logits[[0, 2]] == 0).all()
    for gradient in gradients(logits.sum(), inputs):
        assert gradient.isfinite().all()
    assert (gradients(attend(*inputs)[[0, 2]].sum(), inputs)[2] == 0).all()


def test_padding_does_not_matter():
    *inputs, lengths = draw([2, 5], longest=9)
    logits = attend(*inputs, lengths)
    gradient = gradients(logits.sum(), inputs)[0]
    with torch.no_grad():
        inputs[0][0, 2:] = inputs[1][1, 5:] = torch.nan
    assert torch.equal(attend(*inputs, lengths), logits)
    assert (gradient[0, 2:] == 0).all()


def test_one_tensor_may_be_keys_and_values_and_query_and_output():
    text, _, labels, _, lengths = draw([4, 2], key_width=4)
    found = gradients(attend(text, text, labels, labels, lengths).sum(), [text, labels])
    torch.testing.assert_close(found, gradients(plain(text, text, labels, labels, lengths).sum(), [text, labels]))


@pytest.mark.parametrize("needed", [[0], [1], [2], [3], [2, 3]])
def test_only_what_needs_a_gradient_gets_one(needed):
    *inputs, lengths = draw([4, 2])
    expected = gradients(plain(*inputs, lengths).sum(), inputs)
    inputs = [x.detach().requires_grad_(number in needed) for number, x in enumerate(inputs)]
    attend(*inputs, lengths).sum().backward()
    for number, x in enumerate(inputs):
        if number in needed:
            torch.testing.assert_close(x.grad, expected[number])
        else:
            assert x.grad is None


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)])
def test_errors_stay_small_in_low_precision(dtype, allowed):
    inputs = draw([40, 1, 17], labels=30, key_width=64, width=48, dtype=dtype)
    exact = [x.detach().double().requires_grad_() for x in inputs[:4]]
    ours, theirs = attend(*inputs), plain(*exact, inputs[4])
    assert ours.dtype == torch.float32
    pairs = [(ours, theirs), *zip(gradients(ours.sum(), inputs), gradients(theirs.sum(), exact), strict=True)]
    for found, expected in pairs:
        assert (found - expected).norm() <= allowed * expected.norm()


def test_autocast_leaves_the_precision_alone():
    inputs = draw([4, 2], dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logits = attend(*inputs)
        found = gradients(logits.sum(), inputs)
    assert torch.equal(logits, attend(*inputs))
    torch.testing.assert_close(found, gradients(attend(*inputs).sum(), inputs), rtol=0, atol=0)


def test_large_scores_neither_overflow_nor_vanish():
    keys, values, query, output, lengths = draw([3], dtype=torch.float32)
    logits = attend(keys * 1e4, values, query * 1e4, output, lengths)
    best = (query @ keys[0, :3].T).argmax(-1)  # (labels,)
    torch.testing.assert_close(logits[0], (values[0][best] * output).sum(-1))


@needs_kernels
@pytest.mark.parametrize(("lengths", "longest"), [([33, 0, 1, 16, 5], 34), ([20, 20], 20)], ids=["padded", "full"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scratch", [2**14, 2**20], ids=["a block of labels at a time", "all labels at once"])
def test_the_kernels_give_the_plain_logits_and_gradients(lengths, longest, shared, scratch, monkeypatch):
    from labelwise.network import attention_cuda

    # Triton's interpreter knows no bfloat16.
    device, dtype, allowed = ("cuda", torch.bfloat16, 1e-2) if torch.cuda.is_available() else ("cpu", torch.float32, 1e-5)
    monkeypatch.setattr(attention_cuda, "LABELS", 64)
    monkeypatch.setitem(attention_cuda.FORWARD[shared], "WORDS", 16)
    monkeypatch.setitem(attention_cuda.BACKWARD[shared], "WORDS", 16)
    monkeypatch.setattr(attention_cuda, "SCRATCH", scratch)
    *inputs, lengths = draw(lengths, labels=150, key_width=100, width=100 if shared else 75, longest=longest, dtype=dtype)
    inputs = [x.detach().to(device).requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    if shared:
        inputs[1], exact[1] = inputs[0], exact[0]
    ours = attention_cuda.AttendCuda.apply(*attention._aligned(*inputs), lengths, dtype)
    theirs = plain(*exact, lengths)
    arriving = torch.randn_like(theirs)
    found, expected = gradients((ours * arriving).sum(), inputs[shared:]), gradients((theirs * arriving).sum(), exact[shared:])
    for one, other in zip((ours, *found), (theirs, *expected), strict=True):
        assert (one - other).norm() <= allowed * other.norm()


@needs_kernels
@pytest.mark.parametrize("shared", [False, True])
def test_the_kernels_give_the_plain_loss_and_its_gradients(shared):
    from labelwise.network.attention_cuda import LossCuda

    device, dtype, allowed = ("cuda", torch.bfloat16, 1e-2) if torch.cuda.is_available() else ("cpu", torch.float32, 1e-5)
    *inputs, lengths = draw([9, 0, 1, 5, *[2] * 15], labels=150, key_width=96, width=96 if shared else 72, dtype=dtype)
    inputs = [x.detach().to(device).requires_grad_() for x in (*inputs, 12 * torch.randn(150))]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    if shared:
        inputs[1], exact[1] = inputs[0], exact[0]
    targets = (torch.rand(19, 150) < 0.1).float().to(device)
    ours, theirs = LossCuda.apply(*inputs, lengths, targets, dtype), plain_loss(*exact, lengths, targets.double())
    found, expected = gradients(3 * ours, inputs[shared:]), gradients(3 * theirs, exact[shared:])
    for one, other in zip((ours, *found), (theirs, *expected), strict=True):
        assert (one - other).norm() <= allowed * other.norm()


@needs_kernels
@pytest.mark.parametrize("needed", [[0], [1], [2], [3]])
def test_the_kernels_give_a_gradient_only_to_what_needs_one(needed):
    from labelwise.network.attention_cuda import AttendCuda

    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    *inputs, lengths = draw([4, 2], labels=8, key_width=8, width=16, dtype=dtype)
    inputs = [x.detach().to(device).requires_grad_(number in needed) for number, x in enumerate(inputs)]
    AttendCuda.apply(*inputs, lengths, dtype).sum().backward()
    assert [number for number, x in enumerate(inputs) if x.grad is not None and x.grad.any()] == needed


@needs_gpu
def test_a_batch_without_words_has_logits_0_and_no_gradient_on_a_gpu():
    *inputs, lengths = draw([0, 0], dtype=torch.bfloat16)
    inputs = [x.detach().cuda().requires_grad_() for x in inputs]
    logits = attend(*inputs, lengths)
    assert not any(x.any() for x in (logits, *gradients(logits.sum(), inputs)))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("chunk", [1, 100, 2**24])
@pytest.mark.parametrize("lengths", [[4, 0, 1, 7, 2], [0, 0, 0, 0]], ids=["words", "no words"])
def test_chunks_of_labels_give_the_plain_logits_and_gradients(lengths, chunk, device, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK", chunk)
    *exact, lengths = draw(lengths, labels=8)
    inputs = [x.detach().float().to(device).requires_grad_() for x in exact]
    with torch.no_grad():
        inputs[0][0, lengths[0] :] = inputs[1][3, lengths[3] :] = torch.nan
    ours, theirs = attention._attend_in_chunks(*inputs, lengths), plain(*exact, lengths)
    arriving = torch.randn_like(theirs)
    found = gradients((ours * arriving.to(ours)).sum(), inputs)
    for one, other in zip((ours, *found), (theirs, *gradients((theirs * arriving).sum(), exact)), strict=True):
        assert (one.cpu() - other).norm() <= 1e-5 * other.norm()


@pytest.mark.parametrize(("width", "wider"), [(100, 104), (104, 104), (1, 8)])
def test_zero_columns_fill_rows_up_to_16_bytes_and_keep_keys_and_values_one(width, wider):
    text, _, query, output, _ = draw([4, 2], key_width=width, width=width)
    keys, values, *labels = attention._aligned(text, text, query, output)
    assert values is keys
    for old, new in ((text, keys), (query, labels[0]), (output, labels[1])):
        assert new.shape == (*old.shape[:-1], wider)
        assert torch.equal(new[..., :width], old)
        assert (new[..., width:] == 0).all()


def test_attention_weights_are_shares_of_the_real_words():
    keys, _, query, _, _ = draw([6], dtype=torch.float32)
    weights = attention_weights(keys[0], query, 4)
    assert weights.shape == (5, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))
    expected = torch.exp(query[2] @ keys[0, 1]) / torch.exp(keys[0, :4] @ query[2]).sum()
    torch.testing.assert_close(weights[2, 1], expected)
