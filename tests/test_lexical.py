import pytest
from toy import LABELS, zoo

from labelwise.corpus import Corpus, Document
from labelwise.labels import Label, LabelSet
from labelwise.methods.lexical import Lexical, LexicalSettings


def best(text: str, model: Lexical, labels: LabelSet = LABELS) -> list[str]:
    return [label.id for label, _ in model.predict(Corpus([Document("x", text)], labels)).top(5)[0]]


@pytest.fixture(scope="module")
def model() -> Lexical:
    return Lexical().fit(zoo().train)


def test_names_are_found_in_any_number_and_case(model):
    assert best("An OWL by the Lakes", model) == ["owl", "lake"]


def test_synonyms_count_as_names_unless_told_otherwise(model):
    assert best("wild fowl", model) == ["bird"]
    assert best("wild fowl", Lexical(LexicalSettings(synonyms=False)).fit(zoo().train)) == []


def test_words_side_by_side_count_for_more_than_words_apart(model):
    scores = model.predict(Corpus([Document("1", "grey herons"), Document("2", "herons on a grey day")], LABELS)).dense()
    column = LABELS.column("heron")
    assert scores[0, column] > scores[1, column] > 0


def test_a_share_of_a_name_below_the_coverage_counts_for_nothing(model):
    assert best("a grey day", model) == ["heron"]
    strict = Lexical(LexicalSettings(coverage=0.9)).fit(zoo().train)
    assert best("a grey day", strict) == []


def test_rare_words_tell_more_than_common_ones(model):
    labels = LabelSet([Label("the", "lake"), Label("rare", "submarine")])
    assert best("the lake and the submarine", model, labels) == ["rare", "the"]


def test_labels_added_after_fitting_are_scored(model):
    assert best("a cow", model, LABELS.extended([Label("cow", "cows")])) == ["cow"]


def test_labels_without_a_word_are_left_out(model):
    assert best("?!", model, LabelSet([Label("q", "?!")])) == []


def test_an_explanation_points_at_the_words(model):
    document = Document("x", "Grey herons, and a heron again")
    explanation = model.explain(document, LABELS[LABELS.column("heron")])
    assert [document.text[span.start : span.end] for span in explanation.spans] == ["Grey", "herons", "heron"]
    assert all(span.weight > 0 for span in explanation.spans)
    assert explanation.score == pytest.approx(float(model.predict(Corpus([document], LABELS)).dense()[0, LABELS.column("heron")]))
