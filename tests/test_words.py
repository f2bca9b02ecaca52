import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.features.words import fold, spans, tokenize, words


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The U.S. didn't pay.", ["The", "U.S.", "did", "n't", "pay", "."]),
        ("10,000.5 euros (3.5%)", ["10,000.5", "euros", "(", "3.5", "%", ")"]),
        ("it's state-of-the-art", ["it", "'s", "state", "-", "of", "-", "the", "-", "art"]),
        ("H5N1 é_è", ["H5N1", "é", "_", "è"]),
        ("one\n\ntwo \n three", ["one", "\n\n", "two", "\n", "three"]),
        ("", []),
        ("   ", []),
    ],
)
def test_texts_are_cut_into_words_numbers_signs_and_line_breaks(text, tokens):
    assert tokenize(text) == tokens


def test_line_breaks_can_be_dropped():
    assert tokenize("one\n\ntwo", newlines=False) == ["one", "two"]


def test_words_are_lower_case_and_hold_a_letter_or_digit():
    assert words("The Cat, (no. 9)!") == ["the", "cat", "no", "9"]


@given(st.text())
def test_no_sign_of_a_text_is_lost(text):
    assert "".join(tokenize(text)).replace("\n", "") == "".join(text.split()).replace("\n", "")


@given(st.text(st.characters(max_codepoint=0x24F)))
def test_spans_stand_where_the_words_stand(text):
    if len(text.lower()) == len(text):
        assert [text[start:end].lower() for start, end in spans(text)] == words(text)


@given(st.text(st.sampled_from("abn't'’.,12_ \nU.S")))
def test_words_are_the_tokens_with_a_letter_or_digit(text):
    assert words(text) == [token for token in tokenize(text.lower()) if any(sign.isalnum() for sign in token)]


def test_plurals_fold_to_their_singular():
    assert [fold(w) for w in ["duties", "laws", "glass", "bus", "gas", "lies", "analysis"]] == [
        "duty",
        "law",
        "glass",
        "bus",
        "gas",
        "lie",
        "analysis",
    ]
