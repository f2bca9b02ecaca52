"""Checkpoints of training: a kill changes nothing, and what does not belong together is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_training import QUICK, method

from labelwise.datasets.worlds import make_world
from labelwise.errors import BadSettings, LabelwiseError
from labelwise.jsonl import write_corpus
from labelwise.labels import Label, LabelSet
from labelwise.network import training
from labelwise.network.network import LabelNetwork
from labelwise.network.training import Trainer


@pytest.fixture(scope="module")
def world():
    return make_world(documents=120, labels=40, words=20)


def command(folder, out, *more):
    settings = [
        part
        for setting in (*QUICK, "training.epochs=20", "training.checkpoint_minutes=0", "training.average=0.9")
        for part in ("--set", setting)
    ]
    words = [sys.executable, "-m", "labelwise", "train", "gnc-bigru-lwan", "--on", str(folder), "--out", str(out), *settings]
    return [*words, "--set", "labels.nodes.walks=1", "--set", "labels.nodes.width=4", *more]


def test_a_kill_at_any_moment_and_resume_give_the_same_model_bit_for_bit(world, tmp_path):
    write_corpus(world, tmp_path / "world")
    subprocess.run(command(tmp_path / "world", tmp_path / "whole"), check=True, capture_output=True)
    checkpoint = tmp_path / ".killed.training" / "checkpoint.safetensors"
    resumed = 0
    for wait in (0.02, 0.11, 0.23):
        process = subprocess.Popen(command(tmp_path / "world", tmp_path / "killed", "--resume"), stderr=subprocess.DEVNULL)
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while process.poll() is None and not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > before):
            time.sleep(0.002)
        time.sleep(wait)
        resumed += process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "killed").exists()
    assert resumed == 3
    subprocess.run(command(tmp_path / "world", tmp_path / "killed", "--resume"), check=True, capture_output=True)
    sums = [json.loads((tmp_path / name / "checksums.json").read_text()) for name in ("whole", "killed")]
    assert sums[0] == sums[1]
    assert not checkpoint.exists()


@pytest.mark.parametrize("minutes", [0, 10], ids=["each step", "each epoch"])
def test_looks_plain_means_and_gradient_norms_go_on_from_a_checkpoint_bit_for_bit(world, tmp_path, monkeypatch, minutes):
    loss, left = LabelNetwork.loss, [17, 19, 5]  # steps and looks to each kill, the last one first

    def often_wild(self, tokens, *given, **more):  # so that the norms before it matter
        return loss(self, tokens, *given, **more) * (100 if tokens.lengths.sum() % 3 == 0 else 1)

    def mortal(work):
        def work_or_die(*given):
            if left and left[-1] == 0:
                left.pop()
                raise KeyboardInterrupt
            if left:
                left[-1] -= 1
            return work(*given)

        return work_or_die

    def fitted(work=None):
        settings = ("training.judge_steps=5", "training.average_from=1", f"training.checkpoint_minutes={minutes}")
        model = method("attention-xml", *settings)
        model.work = work
        return model.fit(world.train, world.dev)

    monkeypatch.setattr(LabelNetwork, "loss", often_wild)
    whole = fitted()
    for name in ("_step", "_dev_scores"):
        monkeypatch.setattr(Trainer, name, mortal(getattr(Trainer, name)))
    while left:
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path)
    assert (tmp_path / "checkpoint.safetensors").is_file()
    resumed = fitted(tmp_path)
    told = [[{**look, "documents_per_second": 0} for look in model.history] for model in (whole, resumed)]
    assert told[0] == told[1]
    for one, other in zip(*(model._fitted.network.parameters() for model in (whole, resumed)), strict=True):
        assert torch.equal(one, other)


def test_checkpoints_that_take_long_to_write_are_not_written_after_every_epoch(world, tmp_path, monkeypatch):
    written = []

    def slow(path, network, optimizer, best, state, *more):
        written.append(state.epoch)
        time.sleep(0.5)

    monkeypatch.setattr(training, "write_checkpoint", slow)
    for spared in (training.SPARED, 0):
        monkeypatch.setattr(training, "SPARED", spared)
        model = method("bigru-lwan", "training.epochs=4", "training.patience=9")
        model.work = tmp_path
        model.fit(world.train[:40], world.dev[:10])
    assert written == [1, 4, 1, 2, 3, 4]  # the last one always: what comes next may fail


def test_resuming_with_other_settings_or_documents_is_refused_and_the_differences_are_named(world, tmp_path):
    model = method()
    model.work = tmp_path
    model.fit(world.train, world.dev)
    other = method("bigru-lwan", "training.learning_rate=0.05", "seed=7")
    other.work = tmp_path
    message = r"seed: 1 in the checkpoint, 7 now; training\.learning_rate: 0\.001 in the checkpoint, 0\.05 now"
    with pytest.raises(BadSettings, match=message):
        other.fit(world.train, world.dev)
    model = method()
    model.work = tmp_path
    with pytest.raises(BadSettings, match="training documents: '"):
        model.fit(world.train[:50], world.dev)


def test_a_damaged_checkpoint_is_named(world, tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"no tensors")
    model = method()
    model.work = tmp_path
    with pytest.raises(LabelwiseError, match=r"checkpoint\.safetensors: damaged"):
        model.fit(world.train, world.dev)


def test_a_loss_that_is_not_a_number_stops_training_names_the_batch_and_keeps_the_last_good_checkpoint(
    world, tmp_path, monkeypatch
):
    whole = LabelNetwork.loss
    steps = []

    def poisoned(self, *given, **more):
        steps.append(1)
        return whole(self, *given, **more) * (float("nan") if len(steps) == 20 else 1)

    monkeypatch.setattr(LabelNetwork, "loss", poisoned)
    model = method()
    model.work = tmp_path
    with pytest.raises(LabelwiseError, match=r"the loss is nan in epoch 2, batch 8 \(documents '.*lower training\.learning_rate"):
        model.fit(world.train, world.dev)
    monkeypatch.setattr(LabelNetwork, "loss", whole)
    again = method()
    again.work = tmp_path
    again.fit(world.train, world.dev)
    assert np.array_equal(again.predict(world.test).dense(), method().fit(world.train, world.dev).predict(world.test).dense())


def test_labels_that_changed_since_the_checkpoint_are_noticed(world, tmp_path):
    model = method("gc-cnn-lwan", "encoder.units=16")
    model.work = tmp_path
    model.fit(world.train, world.dev)
    moved = LabelSet(Label(label.id, label.name) for label in world.labels)
    called = LabelSet(replace(label, synonyms=(*label.synonyms, "another name")) for label in world.labels)
    for other in (moved, called):
        again = method("gc-cnn-lwan", "encoder.units=16")
        again.work = tmp_path
        with pytest.raises(BadSettings, match="labels: '"):
            again.fit(world.train.with_labels(other), world.dev.with_labels(other))
