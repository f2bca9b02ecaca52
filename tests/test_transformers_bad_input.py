"""Checkpoints, settings and texts that are damaged, odd or hostile."""

import json
import time
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import tiny
import torch
import transformers
from checkpoints import TEXTS, assert_explained, fitted, folder, head, library, library_segments, library_states, method, scores
from safetensors.torch import load_file, save_file

from labelwise.corpus import Document
from labelwise.errors import BadModel, BadSettings
from labelwise.features.subwords import Subwords, quiet
from labelwise.methods.base import load
from labelwise.network.masked_model import read_model
from labelwise.network.transformer import read_transformer


def changed(place: Path, kind: str = "bert", weights=lambda found: found, **config) -> str:
    """A copy of a checkpoint with other weights or another config.json."""
    copytree(folder(kind), place)
    save_file(weights(load_file(place / "model.safetensors")), place / "model.safetensors", {"format": "pt"})
    told = json.loads((place / "config.json").read_text(encoding="utf-8"))
    (place / "config.json").write_text(json.dumps(told | config), encoding="utf-8")
    return str(place)


def old_names(found):
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in found.items()
    }
    return renamed | {"bert.embeddings.position_ids": torch.arange(tiny.LONGEST)[None]}


def halved(found):
    return {name: weight.half() for name, weight in found.items()}


def test_checkpoints_of_old_and_of_half_precision_are_read_in_full(tmp_path, splits):
    old, half = changed(tmp_path / "old", weights=old_names), changed(tmp_path / "half", weights=halved, dtype="float16")
    expected = library("bert")[1].state_dict()
    for name, weight in read_transformer(old).state_dict().items():
        assert torch.equal(weight, expected[name])
    for name, weight in read_transformer(half).state_dict().items():
        assert torch.equal(weight, expected[name].half().float())
    model = method("bert-base", "bert", f"encoder.checkpoint={half}").fit(splits.train)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert {weight.dtype for weight in again._fitted.network.parameters()} == {torch.float32}
    assert np.array_equal(scores(again, TEXTS, splits.train.labels), scores(model, TEXTS, splits.train.labels))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"num_hidden_layers": 3},
            r"the bert that .* describes: 16 missing \(encoder\.layer\.2\.attention\.\S+, \S+, \S+, …\); ",
        ),
        ({"num_hidden_layers": 1}, r"16 not known \(bert\.encoder\.layer\.1\.attention"),
        ({"intermediate_size": 64}, r"6 of another size \(encoder\.layer\.0\.intermediate\.dense\.bias: \(32,\), not \(64,\)"),
        ({"model_type": "roberta"}, "says model_type roberta, but architectures BertForPreTraining, which is bert"),
        ({"model_type": "no-such-thing"}, r"cannot be read .*no-such-thing.* an encoder that the transformers library knows"),
    ],
)
def test_weights_that_do_not_fit_are_named(tmp_path, config, message):
    with pytest.raises(BadModel, match=message):
        read_transformer(changed(tmp_path / "changed", **config))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_named(tmp_path, value):
    def broken(found):
        found["bert.encoder.layer.1.output.dense.bias"][3] = value
        return found

    with pytest.raises(
        BadModel, match=r"broken: 1 with weights that are not finite \(encoder\.layer\.1\.output\.dense\.bias\); "
    ):
        read_transformer(changed(tmp_path / "broken", weights=broken))


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("Bart", {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}),
        ("ViT", {"image_size": 8, "patch_size": 4, **tiny.SHAPE}),
    ],
)
def test_what_is_no_encoder_of_texts_is_refused(tmp_path, family, shape):
    with quiet():
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 60} if family == "Bart" else {}
        config = getattr(transformers, f"{family}Config")(**shape, **heads)
        getattr(transformers, f"{family}Model")(config).save_pretrained(tmp_path)
    with pytest.raises(BadModel, match=f"{family.lower()} is no encoder of texts; take one, such as BERT or RoBERTa"):
        read_transformer(str(tmp_path))


LLAMA = {"pad_token_id": 0, "vocab_size": 60, **tiny.SHAPE}
GPT = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 60, "bos_token_id": 1, "eos_token_id": 1}


@pytest.mark.parametrize(
    ("family", "shape", "message"),
    [
        ("Llama", LLAMA, "this llama reads from left to right only, .*; take an encoder such as BERT"),
        ("GPT2", GPT, "this gpt2 reads from left to right only"),
        ("Bert", {"vocab_size": 60, "is_decoder": True, **tiny.SHAPE}, "this bert reads from left to right only"),
        ("FNet", {"vocab_size": 60, **tiny.SHAPE}, "fnet does not respect the attention mask"),
        ("Yoso", {"vocab_size": 60, **tiny.SHAPE}, "yoso does not respect the attention mask"),
        ("Nystromformer", {"vocab_size": 60, **tiny.SHAPE}, "nystromformer does not respect the attention mask"),
        ("Funnel", {"vocab_size": 60, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32}, "funnel cannot read a short text"),
    ],
)
def test_what_reads_only_backwards_or_sees_padding_is_refused(tmp_path, family, shape, message):
    made(tmp_path, family, shape)
    with pytest.raises(BadModel, match=message):
        read_transformer(str(tmp_path))


LIKE_ROBERTA = {"vocab_size": 60, "pad_token_id": 1, "max_position_embeddings": 66, **tiny.SHAPE}
OTHERS = {
    "Longformer": LIKE_ROBERTA | {"attention_window": [4, 4]},
    "Camembert": LIKE_ROBERTA,
    "XLMRoberta": LIKE_ROBERTA,
    "Data2VecText": LIKE_ROBERTA,
    "XLNet": {"vocab_size": 60, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32},
    "BigBird": {"vocab_size": 60, "block_size": 4, **tiny.SHAPE},
}


@pytest.mark.parametrize("family", OTHERS)
def test_encoders_of_other_families_are_read_as_the_library_reads_them(tmp_path, family):
    made(tmp_path, family, OTHERS[family])
    with quiet():
        expected = transformers.AutoModel.from_pretrained(tmp_path)
    state, found = torch.get_rng_state(), read_transformer(str(tmp_path))
    assert torch.equal(torch.get_rng_state(), state)
    rows = torch.arange(2, 50)[None]  # long enough for what BigBird does with long texts
    with torch.no_grad():
        assert torch.equal(found(rows).last_hidden_state, expected(rows).last_hidden_state)
    assert getattr(found, "attention_type", None) == getattr(expected, "attention_type", None)


def made(place, family, shape):
    """A checkpoint of any family, of random weights."""
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        getattr(transformers, f"{family}Model")(getattr(transformers, f"{family}Config")(**shape)).save_pretrained(place)


@pytest.mark.parametrize("family", ["roberta", "camembert", "data2vec-text"])
def test_weights_under_the_name_of_another_family_are_refused(tmp_path, family):
    place = tiny.bert(tmp_path / "bert")
    told = json.loads((place / "config.json").read_text(encoding="utf-8"))
    (place / "config.json").write_text(json.dumps(told | {"model_type": family}), encoding="utf-8")
    message = f"says model_type {family}, but architectures BertModel, which is bert; set"
    with pytest.raises(BadModel, match=message):
        read_transformer(str(place))
    if family == "roberta":
        with pytest.raises(BadModel, match=message):
            read_model(place)
    del told["architectures"]
    (place / "config.json").write_text(json.dumps(told), encoding="utf-8")
    assert read_transformer(str(place)).config.model_type == "bert"


def test_families_that_compute_the_same_may_mix_their_names(tmp_path):
    place = copytree(folder("roberta"), tmp_path / "roberta")
    told = json.loads((place / "config.json").read_text(encoding="utf-8"))
    (place / "config.json").write_text(json.dumps(told | {"model_type": "xlm-roberta"}), encoding="utf-8")
    found, expected = read_transformer(str(place)).state_dict(), library("roberta")[1].state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in found.items())


def test_weights_in_a_pickle_are_refused_and_the_way_to_convert_them_works(tmp_path):
    place = copytree(folder("bert"), tmp_path / "pickled")
    torch.save(load_file(place / "model.safetensors"), place / "pytorch_model.bin")
    (place / "model.safetensors").unlink()
    with pytest.raises(BadModel, match=r"pytorch_model\.bin: weights in a pickle.* are not read; convert .*`(.*)`") as refused:
        read_transformer(str(place))
    advice = str(refused.value).split("`")[1].replace("NEW_FOLDER", repr(str(tmp_path / "new")))
    assert "the same with AutoTokenizer" in str(refused.value)
    with quiet():
        exec(advice, vars(transformers))
        exec(advice.replace("AutoModel", "AutoTokenizer"), vars(transformers))
    assert (
        Subwords.read(str(tmp_path / "new")).numbers(TEXTS, None)[0].tolist()
        == Subwords.read(str(place)).numbers(TEXTS, None)[0].tolist()
    )
    found, expected = read_transformer(str(tmp_path / "new")).state_dict(), library("bert")[1].state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in found.items())


def test_folders_without_weights_or_a_tokenizer_or_with_damaged_ones_are_refused(tmp_path, splits):
    place = copytree(folder("bert"), tmp_path / "checkpoint")
    for path in place.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(BadModel, match="checkpoint: no tokenizer; a checkpoint's folder has tokenizer.json"):
        method("bert-base", "bert", f"encoder.checkpoint={place}").fit(splits.train)
    (place / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(BadModel, match=r"checkpoint: cannot be read \(SafetensorError: "):
        read_transformer(str(place))
    (place / "model.safetensors").unlink()
    with pytest.raises(BadModel, match=r"no model\.safetensors in it; give a folder that `save_pretrained` wrote"):
        read_transformer(str(place))


def test_a_tokenizer_with_more_sub_words_than_the_weights_is_refused(tmp_path, splits):
    place = copytree(folder("bert"), tmp_path / "checkpoint")
    tiny.roberta_tokenizer(tmp_path / "other")
    for path in (tmp_path / "other").glob("tokenizer*"):
        path.replace(place / path.name)
    with pytest.raises(BadModel, match=r"checkpoint: its tokenizer has \d+ sub-words, but the weights know \d+; give a folder"):
        method("bert-base", "bert", f"encoder.checkpoint={place}").fit(splits.train)


def test_code_in_a_folder_is_never_run(tmp_path):
    place = changed(tmp_path / "code", model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Model"})
    (tmp_path / "code" / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    with pytest.raises(BadModel, match="cannot be read"):
        read_transformer(place)
    assert not (tmp_path / "ran").exists()


def test_a_hub_name_without_network_says_to_give_a_folder(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        BadModel, match=r"zoo/no-such-bert: cannot be read .*elsewhere and give its folder: --set encoder.checkpoint=FOLDER"
    ):
        read_transformer("zoo/no-such-bert")


def test_without_network_a_hub_name_is_refused_at_once_and_one_that_was_fetched_before_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    begun = time.monotonic()
    with pytest.raises(BadModel, match="zoo/bert: cannot be read"):
        read_transformer("zoo/bert")
    place = tmp_path / "models--zoo--bert"
    copytree(folder("bert"), place / "snapshots" / "0123")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0123")
    assert read_transformer("zoo/bert").config.model_type == "bert"
    assert Subwords.read("zoo/bert").digest == Subwords.read(str(folder("bert"))).digest
    assert time.monotonic() - begun < 10  # the library alone takes half a minute for each


def test_a_file_is_refused_and_its_folder_named():
    for name in ("config.json", "model.safetensors"):
        for read in (lambda path: read_transformer(str(path)), read_model):
            with pytest.raises(BadModel, match=f"{name}: a file; give the folder that it is in, {folder('bert')}$"):
                read(folder("bert") / name)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("encoder.checkpoint=", r"encoder\.checkpoint is empty; name a transformer's folder"),
        ("encoder.segment=65", r"encoder\.segment=65, but this bert takes 64 tokens at once"),
        ("encoder.segment=2", r"encoder\.segment=2 leaves no room"),
        ("encoder.segments=2", r"attention=first reads one of encoder\.segments=2 only; attention=segments"),
    ],
)
def test_settings_that_cannot_be_are_refused(splits, setting, message):
    with pytest.raises(BadSettings, match=message):
        method("bert-base", "bert", setting).fit(splits.train)


@pytest.mark.parametrize("text", ["", " \n\t", "\x00\u200b"])
@pytest.mark.parametrize("name", ["bert-base", "bert-base-lwan", "hier-sci-bert"])
def test_a_document_of_no_sub_words_has_its_special_tokens(name, text):
    model, labels = fitted(name, "bert", 1 if name == "bert-base" else 4)
    states = library_states(library("bert")[1], library_segments("bert", "", 8, 1)[0])
    assert len(states) == 2
    query, weight, bias = (part[labels.column("owl")] for part in head(model))
    read = (states @ query).softmax(0) @ states if name == "bert-base-lwan" else states[0]
    score = torch.sigmoid(read @ weight + bias).item()
    assert scores(model, [text], labels)[0, labels.column("owl")] == pytest.approx(score, abs=1e-5)
    assert_explained(model.explain(Document("d", text, ()), labels[labels.column("owl")]), score, [])


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("piece", ["owls hunt ", "x"])
def test_of_a_million_characters_the_first_segments_are_read(kind, piece):
    model, labels = fitted("bert-base-lwan", kind, 4)
    text = piece * (1_000_000 // len(piece))
    assert np.allclose(scores(model, [text], labels), scores(model, [text[:2000]], labels), atol=1e-6)
    explained = model.explain(Document("d", text, ()), labels[labels.column("owl")])
    assert 0 < len(explained.spans) <= 4 * 6
