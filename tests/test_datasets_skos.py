from __future__ import annotations

import gzip
import random
import sys
import time
from pathlib import Path

import pytest

from labelwise.datasets.skos import read_skos
from labelwise.errors import BadFile, MissingExtra
from labelwise.labels import Label

PREFIXES = """\
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix ex: <http://example.org/> .
"""

GARDEN = """\
ex:scheme a skos:ConceptScheme ; skos:prefLabel "Garden words"@en .
ex:plant a skos:Concept ; skos:prefLabel "plant"@en, "Pflanze"@de ; skos:narrower ex:tree .
ex:tree a skos:Concept ; skos:prefLabel "tree"@en ;
  skos:altLabel "woody plant"@en, "arbre"@fr ; skos:hiddenLabel "tre"@en ; skos:definition "It has a trunk."@en .
ex:oak a skos:Concept ; skos:prefLabel "oak"@en ; skos:broader ex:tree ; skos:scopeNote "All species."@en .
"""

GARDEN_XML = """\
<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:ConceptScheme rdf:about="http://example.org/scheme"><skos:prefLabel>Garden words</skos:prefLabel></skos:ConceptScheme>
<skos:Concept rdf:about="http://example.org/plant">
  <skos:prefLabel xml:lang="en">plant</skos:prefLabel>
  <skos:prefLabel xml:lang="de">Pflanze</skos:prefLabel>
  <skos:narrower rdf:resource="http://example.org/tree"/>
</skos:Concept>
<skos:Concept rdf:about="http://example.org/tree">
  <skos:prefLabel xml:lang="en">tree</skos:prefLabel>
  <skos:altLabel xml:lang="en">woody plant</skos:altLabel>
  <skos:altLabel xml:lang="fr">arbre</skos:altLabel>
  <skos:hiddenLabel xml:lang="en">tre</skos:hiddenLabel>
  <skos:definition xml:lang="en">It has a trunk.</skos:definition>
</skos:Concept>
<skos:Concept rdf:about="http://example.org/oak">
  <skos:prefLabel xml:lang="en">oak</skos:prefLabel>
  <skos:broader rdf:resource="http://example.org/tree"/>
  <skos:scopeNote xml:lang="en">All species.</skos:scopeNote>
</skos:Concept>
</rdf:RDF>
"""

GARDEN_LABELS = [
    Label("http://example.org/oak", "oak", ("http://example.org/tree",), description="All species."),
    Label("http://example.org/plant", "plant"),
    Label("http://example.org/tree", "tree", ("http://example.org/plant",), ("tre", "woody plant"), "It has a trunk."),
]


@pytest.fixture
def turtle(tmp_path: Path):
    """Writes a Turtle file below the prefixes, which take 5 lines."""

    def write(text: str, name: str = "words.ttl") -> Path:
        path = tmp_path / name
        path.write_text(PREFIXES + text, encoding="utf-8")
        return path

    return write


def test_labels_are_sorted_by_iri_with_names_synonyms_parents_and_description(turtle):
    assert list(read_skos([turtle(GARDEN)])) == GARDEN_LABELS


def test_rdf_xml_reads_as_turtle_does(tmp_path):
    path = tmp_path / "words.rdf"
    path.write_text(GARDEN_XML, encoding="utf-8")
    assert list(read_skos([path])) == GARDEN_LABELS


def test_n_triples_read_as_turtle_does(turtle, tmp_path):
    import pyoxigraph

    triples = pyoxigraph.parse(path=turtle(GARDEN), format=pyoxigraph.RdfFormat.TURTLE)
    path = tmp_path / "words.nt"
    path.write_bytes(pyoxigraph.serialize((quad.triple for quad in triples), format=pyoxigraph.RdfFormat.N_TRIPLES))
    assert list(read_skos([path])) == GARDEN_LABELS


def test_a_packed_file_with_a_byte_order_mark_and_crlf_reads_the_same(tmp_path):
    path = tmp_path / "words.TTL.gz"
    text = (PREFIXES + GARDEN).replace("\n", "\r\n").encode()
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text))
    assert list(read_skos([path])) == GARDEN_LABELS


def test_several_files_are_one_thesaurus(turtle):
    words = turtle('ex:a a skos:Concept ; skos:prefLabel "above"@en . ex:b a skos:Concept ; skos:prefLabel "below"@en .')
    links = turtle("ex:b skos:broader ex:a .", "links.ttl")
    assert read_skos([words, links])[1].parents == ("http://example.org/a",)


def test_a_link_given_in_both_directions_is_one_parent(turtle):
    labels = read_skos([turtle(GARDEN + "ex:tree skos:broader ex:plant .")])
    assert labels[2].parents == ("http://example.org/plant",)


def test_transitive_and_related_links_are_not_parents(turtle):
    labels = read_skos([turtle(GARDEN + "ex:oak skos:broaderTransitive ex:plant ; skos:related ex:plant .")])
    assert labels[0].parents == ("http://example.org/tree",)


def test_a_concept_may_have_several_parents(turtle):
    labels = read_skos([turtle(GARDEN + "ex:oak skos:broader ex:plant .")])
    assert labels[0].parents == ("http://example.org/plant", "http://example.org/tree")


def test_without_types_whatever_has_a_preferred_label_is_a_concept(turtle):
    labels = read_skos([turtle('ex:a skos:prefLabel "above"@en . ex:b skos:prefLabel "below"@en ; skos:broader ex:a .')])
    assert [label.name for label in labels] == ["above", "below"]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ('"colour"@en, "Farbe"@de', "colour"),
        ('"Farbe"@de, "colour"@en-GB', "colour"),
        ('"color"@en-US, "colour"@en-GB', "colour"),  # of equal ones the first by tag
        ('"hue", "colour"@en-GB', "colour"),
        ('"Farbe"@de, "hue"', "hue"),
    ],
)
def test_the_name_is_in_the_language_then_a_variant_then_untagged(turtle, names, chosen):
    assert read_skos([turtle(f"ex:a a skos:Concept ; skos:prefLabel {names} .")])[0].name == chosen


def test_the_language_may_be_a_variant_in_any_case(turtle):
    path = turtle('ex:a a skos:Concept ; skos:prefLabel "color"@en-US, "colour"@en-GB .')
    assert read_skos([path], language="EN-us")[0] == Label("http://example.org/a", "color", synonyms=("colour",))


def test_a_concept_without_the_language_is_named_in_another_with_one_warning(turtle):
    path = turtle(GARDEN + 'ex:z a skos:Concept ; skos:prefLabel "Tanne"@de . ex:y a skos:Concept ; skos:prefLabel "pin"@fr .')
    with pytest.warns(UserWarning, match="2 concepts have no name in 'en'; named in") as told:
        labels = read_skos([path])
    assert len(told) == 1
    assert [label.name for label in labels][-2:] == ["pin", "Tanne"]


def test_synonyms_and_descriptions_of_other_languages_stay_out(turtle):
    path = turtle('ex:a a skos:Concept ; skos:prefLabel "tree"@en ; skos:altLabel "Baum"@de ; skos:definition "Hat Holz."@de .')
    assert read_skos([path])[0] == Label("http://example.org/a", "tree")


def test_a_definition_goes_before_a_scope_note(turtle):
    path = turtle('ex:a a skos:Concept ; skos:prefLabel "a"@en ; skos:scopeNote "note"@en ; skos:definition "definition"@en .')
    assert read_skos([path])[0].description == "definition"


def test_skos_xl_labels_and_definitions_that_are_nodes_count_as_texts(turtle):
    first = turtle(
        "ex:a a skos:Concept ; xl:prefLabel _:n ; xl:altLabel ex:alt ; skos:definition ex:def ."
        '_:n xl:literalForm "tree"@en . ex:alt xl:literalForm "woody plant"@en . ex:def rdf:value "It has a trunk."@en .'
    )
    second = turtle('ex:b a skos:Concept ; xl:prefLabel _:n . _:n xl:literalForm "bush"@en .', "more.ttl")
    assert list(read_skos([first, second])) == [
        Label("http://example.org/a", "tree", synonyms=("woody plant",), description="It has a trunk."),
        Label("http://example.org/b", "bush"),
    ]


def test_deprecated_concepts_are_left_out_with_their_links(turtle):
    path = turtle(
        GARDEN + 'ex:old a skos:Concept ; skos:prefLabel "old"@en ; owl:deprecated true ; skos:narrower ex:oak .'
        "ex:tree owl:deprecated false ."
    )
    with pytest.warns(UserWarning, match="1 deprecated concepts with 1 links were left out"):
        assert list(read_skos([path])) == GARDEN_LABELS


def test_concepts_without_a_name_are_left_out_with_their_links(turtle):
    path = turtle(GARDEN + 'ex:bare a skos:Concept ; skos:prefLabel " "@en ; skos:narrower ex:oak .')
    with pytest.warns(UserWarning, match="1 concepts without a preferred label were left out"):
        assert list(read_skos([path])) == GARDEN_LABELS


def test_links_to_concepts_that_are_not_there_are_dropped_and_counted(turtle):
    path = turtle(GARDEN + "ex:oak skos:broader ex:elsewhere . ex:nowhere skos:broader ex:plant .")
    with pytest.warns(UserWarning, match="2 links to concepts that are not in it were dropped"):
        assert list(read_skos([path])) == GARDEN_LABELS


def test_a_cycle_is_warned_of_by_name(turtle):
    with pytest.warns(UserWarning, match=r"cycle: http://example.org/oak → .*tree"):
        read_skos([turtle(GARDEN + "ex:plant skos:broader ex:oak .")])


def test_a_language_that_nothing_has_is_an_error_that_names_those_there(turtle):
    with pytest.raises(BadFile, match=r"words.ttl: no name in the language 'fi'; choose one that is there: de, en$"):
        read_skos([turtle(GARDEN)], language="fi")


@pytest.mark.parametrize("text", ["", "ex:scheme a skos:ConceptScheme .", "ex:a a skos:Concept ."])
def test_a_file_without_a_named_concept_is_an_error(turtle, text):
    with pytest.raises(BadFile, match=r"words.ttl: no concept with a name in it"):
        read_skos([turtle(text)])


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("words.ttl", PREFIXES + "\nex:a skos:prefLabel .\n", 7),
        ("words.ttl", PREFIXES + 'ex:a skos:prefLabel "cut o', 6),
        ("words.ttl", PREFIXES + "un:known a skos:Concept .", 6),
        ("words.nt", "<http://a/b> <http://a/c> <http://a/d> .\n<http://a/b> oops .\n", 2),
        ("words.rdf", GARDEN_XML.replace("plant</skos:pref", "plant</skos:alt", 1), 5),
        ("words.rdf", GARDEN_XML.replace('about="http://example.org/oak"', 'about="no iri"'), 16),
        ("words.xml", "\n".join(GARDEN_XML.splitlines()[:8]), 8),
    ],
)
def test_a_syntax_error_is_told_with_file_and_line(tmp_path, name, content, line):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadFile, match=rf"{name}:{line}: "):
        read_skos([path])


def test_a_file_in_another_encoding_is_an_error(tmp_path):
    path = tmp_path / "words.ttl"
    path.write_bytes((PREFIXES + 'ex:a skos:prefLabel "é" .').encode("latin-1"))
    with pytest.raises(BadFile, match=r"words.ttl:6: .*UTF-8"):
        read_skos([path])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("words.csv", b"", "not a SKOS file by its name, which must end in .ttl"),
        ("words.ttl.gz", b"not packed", "broken .gz file"),
        ("words.ttl.gz", gzip.compress(GARDEN.encode(), mtime=0)[:-20], "broken .gz file"),
        ("missing.ttl", None, "no such file"),
    ],
)
def test_a_file_that_cannot_be_opened_is_an_error(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFile, match=f"{name}: {message}"):
        read_skos([tmp_path / name])


def test_without_pyoxigraph_the_message_says_what_to_install(turtle, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(MissingExtra, match=r"pip install 'labelwise\[skos\]'"):
        read_skos([turtle(GARDEN)])


def test_a_thesaurus_of_3_4_megabytes_reads_within_two_seconds(turtle):
    choose = random.Random(1)
    parts = ["water", "river", "harbour", "treaty", "finance", "bridge", "quality", "school"]
    lines, size, number = ['ex:c0 a skos:Concept ; skos:prefLabel "top"@en .\n'], 0, 1
    while size < 3_400_000:
        lines.append(
            f'ex:c{number} a skos:Concept ;\n  skos:prefLabel "{choose.choice(parts)} {number}"@en, "mot {number}"@fr ;\n'
            f'  skos:altLabel "{choose.choice(parts)} {choose.choice(parts)}"@en, "{choose.choice(parts)}"@de ;\n'
            f"  skos:broader ex:c{choose.randrange(number // 5 + 1) % number} ;\n  skos:inScheme ex:scheme .\n"
        )
        size, number = size + len(lines[-1]), number + 1
    path = turtle("".join(lines))
    start = time.perf_counter()
    labels = read_skos([path])
    assert time.perf_counter() - start < 2
    assert len(labels) == number
