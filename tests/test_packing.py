"""Short texts that share the rows of a transformer."""

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.network.packing import ROW, ROWS, WIDE, pack
from labelwise.network.playback import Together
from labelwise.network.token_encoders import Tokens
from labelwise.network.transformer import TransformerEncoder, read_transformer


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return TransformerEncoder(read_transformer(str(tiny.bert(tmp_path_factory.mktemp("bert")))), 32, 0).eval()


def texts(lengths: list[int]) -> torch.Tensor:
    torch.manual_seed(len(lengths))
    numbers = torch.randint(5, 30, (len(lengths), max(lengths)))
    return numbers.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 150), min_size=1, max_size=60), st.sampled_from([ROW, WIDE]))
def test_every_token_stands_once_among_those_of_its_own_text(lengths, least):
    numbers = texts(lengths)
    packed = pack(numbers, torch.tensor(lengths), 0, least)
    assert packed.numbers.shape[1] == max(least, *lengths)
    assert packed.numbers.shape[0] <= 2 * sum(lengths) / least + 1
    first = torch.where(packed.parts > 0, 1, 0).flatten(0, 1)[packed.slots]  # (texts, row), 1 at a text's own columns
    rows = packed.slots // packed.parts.shape[1]
    for text, (row, own) in enumerate(zip(rows, first, strict=True)):
        columns = torch.nonzero(own)[:, 0]
        assert packed.numbers[row, columns].tolist() == numbers[text, : lengths[text]].tolist()
        assert packed.places[row, columns].tolist() == list(range(lengths[text]))
        assert packed.mask[row, 0, columns].sum(-1).tolist() == [lengths[text]] * lengths[text]


def test_a_text_says_the_same_alone_and_among_others(encoder):
    lengths = [3, 30, 7, 2, 12, 30, 5, 9, 1, 28, 30, 30]
    numbers = texts(lengths)
    with torch.no_grad():
        together = encoder.say(numbers, torch.tensor(lengths))
        alone = [
            encoder.model(input_ids=row[None, :length]).last_hidden_state[0].mean(0)
            for row, length in zip(numbers, lengths, strict=True)
        ]
    torch.testing.assert_close(together, torch.stack(alone))


def test_gradients_are_those_of_texts_in_rows_of_their_own(encoder):
    lengths = torch.tensor([4, 9, 2, 17])
    numbers = texts(lengths.tolist())
    weight = encoder.model.get_input_embeddings().weight
    (packed,) = torch.autograd.grad(encoder.say(numbers, lengths).pow(2).sum(), weight)
    encoder.packs = False
    (padded,) = torch.autograd.grad(encoder.say(numbers, lengths).pow(2).sum(), weight)
    encoder.packs = True
    torch.testing.assert_close(packed, padded, rtol=1e-4, atol=1e-6)


def test_rows_that_fill_up_a_recording_change_nothing(encoder):
    lengths = torch.tensor([4, 9, 2, 17] * 20)
    numbers = texts(lengths.tolist())
    packed = pack(numbers, lengths, 0)
    rows, mask, places = packed.rounded(0)
    assert len(rows) % ROWS == 0
    assert len(rows) > len(packed.numbers)
    with torch.no_grad():
        states = encoder.model(input_ids=rows, attention_mask=mask, position_ids=places).last_hidden_state
        torch.testing.assert_close(packed.means(states), encoder.say(numbers, lengths))


@pytest.mark.parametrize("segment", [32, 8])
def test_documents_and_texts_in_one_pass_are_what_they_are_alone(encoder, monkeypatch, segment):
    lengths, short = torch.tensor([20, 7, 1]), torch.tensor([4, 9, 2, 17])
    tokens, numbers = Tokens(texts(lengths.tolist()), lengths), texts(short.tolist())
    monkeypatch.setattr(encoder, "segment", segment)
    with torch.no_grad():
        states, said = encoder(tokens), encoder.say(numbers, short)
        monkeypatch.setattr(encoder, "_recorded", lambda _: Together(encoder.model))  # what a GPU records
        together = encoder.both(tokens, numbers, short)
    torch.testing.assert_close(together[0].float(), states, rtol=0.05, atol=0.05)
    torch.testing.assert_close(together[1].float(), said, rtol=0.05, atol=0.05)


def test_one_pass_has_the_gradients_of_both(encoder, monkeypatch):
    lengths, short = torch.tensor([20, 7, 1]), torch.tensor([4, 9, 2, 17])
    tokens, numbers = Tokens(texts(lengths.tolist()), lengths), texts(short.tolist())
    weights = [weight for weight in encoder.model.parameters() if weight.requires_grad]

    def slopes() -> torch.Tensor:
        states, said = encoder.both(tokens, numbers, short)
        found = torch.autograd.grad(states.float().pow(2).sum() + said.float().pow(3).sum(), weights, allow_unused=True)
        return torch.cat([slope.flatten() for slope in found if slope is not None])

    alone = slopes()
    monkeypatch.setattr(encoder, "_recorded", lambda _: Together(encoder.model))
    together = slopes()
    assert (together - alone).norm() < 0.03 * alone.norm()
