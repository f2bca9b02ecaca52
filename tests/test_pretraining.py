"""Pretraining: what is packed, hidden and predicted, that a kill changes nothing, and that transformers can read the result."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny import bert, roberta
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer
from typer.testing import CliRunner

import labelwise.pretraining as pretraining
from labelwise.cli.main import app
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadCorpus, BadModel, BadSettings, LabelwiseError, OutputExists
from labelwise.jsonl import write_corpus
from labelwise.network.masked_model import learn_vocabulary, read_model
from labelwise.network.masking import Marks, hide, pack, places
from labelwise.pretraining import Pretrainer, PretrainSettings, pretrain

SMALL = PretrainSettings(vocabulary=400, layers=2, width=32, heads=2, length=32, batch=8, epochs=2, device="cpu")
MARKS = Marks(2, 3, 0, 4, torch.arange(5), torch.arange(5, 50))
TOKENS = st.lists(st.integers(5, 49), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def world():
    return make_world(documents=100, labels=30, words=20)


@pytest.fixture(scope="module")
def texts(world):
    return [document.text for document in world.train], [document.text for document in world.dev]


@pytest.fixture(scope="module")
def encoder(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    return folder, pretrain(*texts, folder, SMALL)


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


@given(documents=st.lists(TOKENS, min_size=1, max_size=8), length=st.integers(8, 20))
def test_packed_documents_stand_one_after_the_other(documents, length):
    flat = pack([np.array(document) for document in documents], MARKS, length).tolist()
    wanted = [token for document in documents for token in (2, *document, 3)]
    assert flat == wanted + [0] * (-len(wanted) % length)
    assert len(flat) % length == 0


@given(documents=st.lists(TOKENS, min_size=1, max_size=6), length=st.integers(8, 20))
def test_a_token_looks_at_its_own_document_and_positions_count_from_its_start(documents, length):
    rows = pack([np.array(document) for document in documents], MARKS, length).view(-1, length)
    positions, together = places(rows, MARKS)
    for row, found, looks in zip(rows.tolist(), positions.tolist(), together[:, 0].tolist(), strict=True):
        start = 0
        starts = [start := place if token in (MARKS.start, MARKS.pad) else start for place, token in enumerate(row)]
        assert found == [place - start for place, start in enumerate(starts)]
        assert looks == [[one == other for other in starts] for one in starts]


@given(documents=st.lists(TOKENS, min_size=1, max_size=6), share=st.floats(0.05, 0.5), seed=st.integers(0, 99))
def test_a_share_of_the_text_is_hidden_and_marks_never_are(documents, share, seed):
    rows = pack([np.array(document) for document in documents], MARKS, 16).view(-1, 16).long()
    shown, chosen, truth = hide(rows, MARKS, share, torch.Generator().manual_seed(seed))
    for row, seen, where, what in zip(rows, shown, chosen, truth, strict=True):
        asked = {int(place): int(token) for place, token in zip(where, what, strict=True) if token != -100}
        text = int((row > 4).sum())
        assert share * text - 1e-5 <= len(asked) < share * text + 1 + 1e-5
        assert all(int(row[place]) == token > 4 for place, token in asked.items())
        assert all(int(seen[place]) == int(row[place]) for place in range(16) if place not in asked)


def test_hidden_tokens_are_shown_as_mask_as_another_or_as_they_are():
    rows = torch.full((400, 128), 7)
    shown, _, truth = hide(rows, MARKS, 0.15, torch.Generator().manual_seed(1))
    hidden = int((truth != -100).sum())
    assert hidden == 400 * 20  # 15 % of 128, rounded up
    assert int((shown == MARKS.mask).sum()) / hidden == pytest.approx(0.8, abs=0.02)
    others = Counter(shown[(shown != MARKS.mask) & (shown != 7)].tolist())
    assert sum(others.values()) / hidden == pytest.approx(0.1 * 44 / 45, abs=0.02)
    assert set(others) == set(range(5, 50)) - {7}


def test_hidden_tokens_are_drawn_anew_each_time():
    rows = torch.full((4, 64), 7)
    assert not torch.equal(hide(rows, MARKS, 0.15)[1], hide(rows, MARKS, 0.15)[1])


def trainer(folder, documents, **changes):
    model = read_model(folder)
    settings = replace(SMALL, **changes)
    return Pretrainer(model, settings, [np.array(one) for one in documents], [], device=torch.device("cpu"))


@pytest.mark.parametrize("make", [bert, roberta])
def test_a_document_has_the_states_packed_that_it_has_alone(make, tmp_path):
    run = trainer(make(tmp_path), [[10, 11, 12], [20, 21], [30, 31, 32, 33]], length=16)
    run.network.eval()
    rows = run.train.view(-1, 16).long()
    with torch.no_grad():
        alone = run.network.base_model(rows[:, 5:9]).last_hidden_state  # the second document, with its marks
        assert torch.allclose(run._states(rows, rows)[:, 5:9], alone, atol=1e-6)


@pytest.mark.parametrize("make", [bert, roberta])
def test_the_loss_is_that_of_transformers_over_the_hidden_tokens(make, tmp_path):
    run = trainer(make(tmp_path), [[10, 11, 12, 13, 14, 15, 16, 17, 18, 19] * 3], length=32)
    run.network.eval()
    rows = run.train.view(-1, 32).long()
    shown, chosen, truth = hide(rows, run.marks, 0.15, torch.Generator().manual_seed(3))
    labels = torch.full_like(rows, -100).scatter(1, chosen, truth)
    wanted = run.network(input_ids=shown, labels=labels).loss
    assert run._loss(rows, torch.Generator().manual_seed(3)).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_the_loss_of_a_sequence_of_marks_alone_is_nothing(tmp_path):
    run = trainer(bert(tmp_path), [[10, 11]], length=8)
    assert run._loss(torch.tensor([[3, 0, 0, 0, 0, 0, 0, 0]])).item() == 0


def test_frequent_words_are_whole_and_no_text_is_unknown():
    cutter = learn_vocabulary(["Bronchopneumonia treated with ceftriaxone"] * 5 + ["Größe"], 400)
    assert cutter.encode("bronchopneumonia, CEFTRIAXONE", add_special_tokens=False).tokens == [
        "Ġbronchopneumonia",
        ",",
        "Ġceftriaxone",
    ]
    for text in ("größe", "日本 ☃", "a\tb"):
        assert cutter.decode(cutter.encode(text).ids).strip() == text
    kept = learn_vocabulary(["Owls"] * 5, 400, lower=False)
    assert kept.encode("Owls", add_special_tokens=False).tokens == ["ĠOwls"]


def test_transformers_reads_the_folder_with_no_weight_missing(encoder, texts):
    folder, _ = encoder
    bare, told = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"]
    assert all(name.startswith("cls.") for name in told["unexpected_keys"])  # the head, which a bare encoder has no place for
    whole, told = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"]
    assert all(".pooler." in name for name in told["unexpected_keys"])
    tokens = AutoTokenizer.from_pretrained(folder)(texts[0][0], return_tensors="pt", truncation=True)
    assert tokens["input_ids"].shape[1] <= SMALL.length
    with torch.no_grad():
        assert torch.equal(bare(**tokens).last_hidden_state, whole.bert(**tokens).last_hidden_state)


def test_the_tokenizer_of_the_folder_is_the_one_that_was_trained(encoder, texts):
    folder, told = encoder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == told["vocabulary"] <= SMALL.vocabulary
    learned = learn_vocabulary(texts[0], SMALL.vocabulary)
    for text in (*texts[1], "Entirely New"):
        assert tokenizer(text)["input_ids"] == learned.encode(text).ids
        assert tokenizer(text)["input_ids"][0] == tokenizer.cls_token_id
    masked = tokenizer.convert_ids_to_tokens(tokenizer("lake [MASK] deep")["input_ids"])
    assert masked[masked.index("[MASK]") - 1] != "Ġ"  # its blank is its own, as that of any word


def test_training_learns_what_the_held_out_texts_are_made_of(texts, tmp_path):
    told = pretrain(*texts, tmp_path / "out", replace(SMALL, epochs=40, learning_rate=0.01, dropout=0.0))
    losses = [line["dev_loss"] for line in told["history"]]
    assert losses[-1] < losses[0] - 0.5
    assert told["loss"] == told["history"][-1]["loss"] < told["history"][0]["loss"] - 0.5


def test_fragmentation_is_sub_words_over_words(texts, tmp_path):
    told = pretrain(*texts, tmp_path / "out", SMALL, compare=bert(tmp_path / "bert"))
    words = sum(len(text.split()) for text in texts[0])
    for folder, found in (("out", "after"), ("bert", "before")):
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / folder)
        pieces = sum(len(tokenizer(text, add_special_tokens=False, truncation=False)["input_ids"]) for text in texts[0])
        assert told["fragmentation"][found] == pytest.approx(pieces / words)
    assert told["fragmentation"]["after"] < told["fragmentation"]["before"]


def test_the_summary_counts_what_was_done(encoder, texts):
    folder, told = encoder
    assert told == json.loads((folder / "pretraining.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=10**6)
    tokens = sum(len(tokenizer(text)["input_ids"]) for text in texts[0])
    assert told["tokens_seen"] == 2 * tokens
    assert told["steps"] == 2 * -(-tokens // (32 * 8))
    assert told["documents"] == len(texts[0])
    assert told["settings"] == asdict(SMALL)
    assert len(told["history"]) == 2


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(encoder, texts, tmp_path):
    pretrain(*texts, tmp_path / "same", SMALL)
    pretrain(*texts, tmp_path / "other", replace(SMALL, seed=2))
    assert weights(tmp_path / "same") == weights(encoder[0]) != weights(tmp_path / "other")
    assert (tmp_path / "same" / "tokenizer.json").read_bytes() == (encoder[0] / "tokenizer.json").read_bytes()


def recorded(texts, out, monkeypatch, **changes):
    """The rows and the step size of every step of a run."""
    whole, seen = Pretrainer._step, []

    def recording(self, rows):
        loss = whole(self, rows)
        seen.append((rows, self.optimizer.param_groups[0]["lr"]))
        return loss

    monkeypatch.setattr(Pretrainer, "_step", recording)
    pretrain(*texts, out, replace(SMALL, **changes))
    return [rows for rows, _ in seen], [rate for _, rate in seen]


def test_every_token_is_read_once_an_epoch_and_the_cuts_move(texts, tmp_path, monkeypatch):
    rows, _ = recorded(texts, tmp_path / "out", monkeypatch)
    epochs = [torch.cat(part) for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :])]
    assert torch.equal(*(epoch.flatten().sort().values for epoch in epochs))
    one, other = ({tuple(row) for row in epoch.tolist()} for epoch in epochs)
    assert not one & other


def test_the_step_size_rises_and_then_falls_to_nothing(texts, tmp_path, monkeypatch):
    _, rates = recorded(texts, tmp_path / "out", monkeypatch, steps=100, warmup=0.2)
    wanted = np.interp((np.arange(100) + 0.5) / 100, [0, 0.2, 1], [0, 5e-4, 0])
    assert rates == pytest.approx(wanted)


def test_half_precision_is_used_where_it_is_asked_for_and_changes_little(encoder, texts, tmp_path):
    told = pretrain(*texts, tmp_path / "out", replace(SMALL, precision="bfloat16"))
    assert told["dev_loss"] == pytest.approx(encoder[1]["dev_loss"], abs=0.05)
    assert told["dev_loss"] != encoder[1]["dev_loss"]


@pytest.mark.parametrize("steps", [3, 7])
def test_steps_end_training_where_they_say(texts, tmp_path, steps):
    assert pretrain(*texts, tmp_path / "out", replace(SMALL, steps=steps))["steps"] == steps


def test_training_ends_within_its_budget(texts, tmp_path):
    told = pretrain(*texts, tmp_path / "out", replace(SMALL, epochs=100_000, budget=0.01))
    assert 0.5 < told["seconds"] < 5
    assert told["steps"] < 100_000


@pytest.mark.parametrize("moment", [1, 6, 13])
def test_a_run_that_broke_off_ends_in_the_same_bits(encoder, texts, tmp_path, monkeypatch, moment):
    settings, whole, taken = replace(SMALL, checkpoint_minutes=0.0), Pretrainer._step, []

    def breaking(self, rows):
        taken.append(1)
        if len(taken) == moment:
            raise KeyboardInterrupt
        return whole(self, rows)

    monkeypatch.setattr(Pretrainer, "_step", breaking)
    with pytest.raises(KeyboardInterrupt):
        pretrain(*texts, tmp_path / "out", settings, work=tmp_path / "work")
    assert not (tmp_path / "out").exists()
    told = pretrain(*texts, tmp_path / "out", settings, work=tmp_path / "work")
    assert len(taken) == told["steps"] + 1  # none was taken twice
    assert weights(tmp_path / "out") == weights(encoder[0])
    assert told["history"] == encoder[1]["history"]


def test_resuming_with_other_settings_or_texts_is_refused(texts, tmp_path):
    pretrain(*texts, tmp_path / "out", SMALL, work=tmp_path)
    with pytest.raises(BadSettings, match="seed: 1 in the checkpoint, 5 now"):
        pretrain(*texts, tmp_path / "again", replace(SMALL, seed=5), work=tmp_path)
    with pytest.raises(BadSettings, match="training documents: "):
        pretrain(texts[0][5:] + texts[0][:5], texts[1], tmp_path / "again", SMALL, work=tmp_path)


@pytest.mark.parametrize("make", [bert, roberta])
def test_a_checkpoint_goes_on_with_its_own_vocabulary_and_pooler(make, texts, tmp_path):
    make(tmp_path / "start")
    told = pretrain(*texts, tmp_path / "out", replace(SMALL, epochs=1), start=tmp_path / "start")
    before, after = load_file(tmp_path / "start" / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    prefix = make.__name__
    assert torch.equal(before["pooler.dense.weight"], after[f"{prefix}.pooler.dense.weight"])
    moved = after[f"{prefix}.encoder.layer.0.output.dense.weight"] - before["encoder.layer.0.output.dense.weight"]
    assert 0 < moved.abs().max() < 0.01
    old, new = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("start", "out"))
    assert all(old(text)["input_ids"] == new(text)["input_ids"] for text in texts[1])
    assert told["vocabulary"] == len(old)
    assert not AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)[1]["missing_keys"]


def test_what_was_pretrained_goes_on_with_its_head(encoder, texts, tmp_path):
    told = pretrain(*texts, tmp_path / "more", replace(SMALL, epochs=1, learning_rate=1e-6), start=encoder[0])
    assert told["dev_loss"] == pytest.approx(encoder[1]["dev_loss"], abs=0.001)


def test_text_that_looks_like_a_mark_is_text(tmp_path):
    told = pretrain(["an owl [MASK] and [CLS] a duck [SEP]"] * 40, [], tmp_path / "out", replace(SMALL, epochs=1))
    run = trainer(tmp_path / "out", [[10]])
    assert told["tokens_seen"] > 40 * 10
    cut = pretraining._cut(read_model(tmp_path / "out").subwords, ["a [MASK] b [SEP]"], lambda items, *_: items)
    assert not set(cut[0].tolist()) & set(run.marks.special.tolist())


def test_a_loss_that_is_not_a_number_names_the_step_and_keeps_the_last_good_checkpoint(encoder, texts, tmp_path, monkeypatch):
    whole, taken = Pretrainer._loss, []

    def poisoned(self, rows, generator=None):
        taken.append(1)
        return whole(self, rows, generator) * (float("nan") if len(taken) == encoder[1]["steps"] else 1)

    monkeypatch.setattr(Pretrainer, "_loss", poisoned)
    with pytest.raises(LabelwiseError, match=r"the loss is nan at step \d+: lower learning_rate .* kept for --resume"):
        pretrain(*texts, tmp_path / "out", SMALL, work=tmp_path / "work")
    monkeypatch.setattr(Pretrainer, "_loss", whole)
    pretrain(*texts, tmp_path / "out", SMALL, work=tmp_path / "work")
    assert weights(tmp_path / "out") == weights(encoder[0])


def test_too_little_memory_says_what_to_lower(texts, tmp_path, monkeypatch):
    def full(self, *given):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\nand a long story")

    monkeypatch.setattr(Pretrainer, "_loss", full)
    with pytest.raises(LabelwiseError, match="out of memory on cpu with 8 sequences of 32 tokens: lower batch or length"):
        pretrain(*texts, tmp_path / "out", SMALL)


def test_what_cannot_be_trained_is_refused(texts, tmp_path):
    with pytest.raises(BadSettings, match="width=32 is not a multiple of heads=5"):
        pretrain(*texts, tmp_path / "out", replace(SMALL, heads=5))
    with pytest.raises(BadCorpus, match="no training text has a word"):
        pretrain([], [], tmp_path / "out", SMALL)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(OutputExists):
        pretrain(*texts, tmp_path / "out", SMALL)


def test_a_checkpoint_that_will_not_do_is_refused(texts, tmp_path, monkeypatch):
    def refused(message):
        with pytest.raises(BadModel, match=message):
            pretrain(*texts, tmp_path / "out", SMALL, start=start)

    start = tmp_path / "start"
    refused("start: no such folder; give one with config.json and model.safetensors$")
    start.mkdir()
    refused("start: no config.json in it; --from takes a transformers folder on this machine")
    bert(start)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (start / name).rename(tmp_path / name)
    refused("no tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).rename(start / name)
    kept = (start / "model.safetensors").read_bytes()
    (start / "model.safetensors").write_bytes(kept[:1000])
    refused(r"start: cannot be read \(SafetensorError: .* must hold config\.json and model\.safetensors")
    (start / "model.safetensors").rename(start / "pytorch_model.bin")
    refused(r"weights in a pickle, .* writes model\.safetensors")
    (start / "model.safetensors").write_bytes(kept)
    config = json.loads((start / "config.json").read_text())
    for changed, message in (
        ({"is_decoder": True}, "this bert reads from left to right only"),
        ({"num_hidden_layers": 3}, r"the bert that .* describes: 16 missing \(encoder\.layer\.2\."),
        ({"num_hidden_layers": 1}, r"16 not known \(encoder\.layer\.1\."),
        ({"intermediate_size": 64}, r"6 of another size \(encoder\.layer\.0\.intermediate\.dense\.bias: \(32,\), not \(64,\)"),
    ):
        (start / "config.json").write_text(json.dumps(config | changed))
        refused(message)
    (start / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    refused("a model of type 'gpt2'; --from goes on from bert")
    (start / "config.json").write_text(json.dumps(config | {"hidden_act": "no-such-thing"}))
    refused("start: cannot be read .*no-such-thing")
    code = {"model_type": "own", "auto_map": dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForMaskedLM"), "own.Own")}
    (start / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *asked: "y")  # should the library ask whether to run it
    (start / "config.json").write_text(json.dumps(config | code))
    refused("start: ")
    assert not (tmp_path / "ran").exists()
    (start / "config.json").write_text(json.dumps(config))
    broken = load_file(start / "model.safetensors")
    broken["pooler.dense.bias"][3] = torch.nan
    save_file(broken, start / "model.safetensors", {"format": "pt"})
    refused(r"start: 1 with weights that are not finite \(pooler\.dense\.bias\); copy or download it again")
    assert not (tmp_path / "out").exists()


def test_a_text_of_a_million_characters_without_a_blank_is_learned_from_in_no_time():
    started = time.perf_counter()
    cutter = learn_vocabulary(["a" * 10**6, "日本" * 10**5, "one two"], 400)
    assert time.perf_counter() - started < 30
    assert len(cutter.encode("aaaa", add_special_tokens=False).ids) < 4


def test_nothing_is_asked_of_the_network(texts, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(socket.socket, "connect", lambda *given: asked.append(given))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: asked.append(given) or [])
    bert(tmp_path / "start")
    pretrain(*texts, tmp_path / "one", replace(SMALL, epochs=1), compare=tmp_path / "start")
    pretrain(*texts, tmp_path / "two", replace(SMALL, epochs=1), start=tmp_path / "one")
    assert (tmp_path / "two" / "model.safetensors").exists()
    assert not asked


def arguments(corpus, out, *more):
    settings = {**asdict(SMALL), "checkpoint_minutes": 0.0}
    return [
        "pretrain",
        str(corpus),
        "--out",
        str(out),
        *(f"--set={key}={json.dumps(value)}" for key, value in settings.items()),
        *more,
    ]


def test_the_command_reads_a_corpus_and_says_what_it_did(world, encoder, tmp_path):
    write_corpus(world, tmp_path / "world")
    (tmp_path / "world" / "labels.jsonl").unlink()  # texts are all it takes
    done = CliRunner().invoke(app, arguments(tmp_path / "world", tmp_path / "out", "--json"), catch_exceptions=False)
    assert json.loads(done.stdout)["history"] == encoder[1]["history"]
    assert weights(tmp_path / "out") == weights(encoder[0])
    assert not (tmp_path / ".out.training").exists()
    done = CliRunner().invoke(app, arguments(tmp_path / "world", tmp_path / "out", "--resume"), catch_exceptions=False)
    assert "already trained with these settings" in done.stdout
    later = ("--resume", "--device", "cpu", "--budget", "3h", "--set=checkpoint_minutes=7")
    done = CliRunner().invoke(app, arguments(tmp_path / "world", tmp_path / "out", *later), catch_exceptions=False)
    assert "already trained with these settings" in done.stdout
    with pytest.raises(LabelwiseError, match=r"trained with other settings \(seed=1, not 7\); use --force"):
        CliRunner().invoke(
            app, arguments(tmp_path / "world", tmp_path / "out", "--resume", "--seed", "7"), catch_exceptions=False
        )


def test_the_command_reads_plain_texts_and_jsonl_files_too(world, texts, tmp_path):
    (tmp_path / "texts.txt").write_text("\n\n".join(texts[0]))
    write_corpus(world, tmp_path / "world")
    for name, source in (("plain", "texts.txt"), ("lines", "world/train.jsonl")):
        done = CliRunner().invoke(app, arguments(tmp_path / source, tmp_path / name), catch_exceptions=False)
        assert done.stdout.startswith("fragmentation 1.")
        assert "80 documents" in done.stdout
    assert weights(tmp_path / "plain") == weights(tmp_path / "lines")
    with pytest.raises(BadCorpus, match=r"no train\.jsonl"):
        CliRunner().invoke(app, arguments(tmp_path, tmp_path / "none"), catch_exceptions=False)


def test_a_kill_and_resume_give_the_same_weights(world, encoder, tmp_path):
    write_corpus(world, tmp_path / "world")
    command = [sys.executable, "-m", "labelwise", *arguments(tmp_path / "world", tmp_path / "out", "--resume")]
    checkpoint = tmp_path / ".out.training" / "checkpoint.safetensors"
    process = subprocess.Popen(command)
    while process.poll() is None and not checkpoint.exists():
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    done = CliRunner().invoke(app, command[3:], catch_exceptions=False)
    assert done.exit_code == 0
    assert weights(tmp_path / "out") == weights(encoder[0])
    assert not checkpoint.exists()


def test_a_finished_encoder_is_replaced_only_when_told(encoder, texts, tmp_path):
    shutil.copytree(encoder[0], tmp_path / "out")
    with pytest.raises(OutputExists, match="add --force"):
        pretrain(*texts, tmp_path / "out", SMALL)
    pretrain(*texts, tmp_path / "out", replace(SMALL, epochs=1), force=True)
    assert weights(tmp_path / "out") != weights(encoder[0])
