"""The training loop: what it minimises, and when it stops."""

import time
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, Document, Splits
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadSettings, LabelwiseError
from labelwise.evaluation import evaluate
from labelwise.methods import neural
from labelwise.network.batches import Examples, bucketed
from labelwise.network.composition import build
from labelwise.network.devices import choose_device
from labelwise.network.network import LabelNetwork
from labelwise.network.steps import clip_by_last
from labelwise.network.training import State, Trainer, TrainingSettings, prediction_batches
from labelwise.registry import make_method
from labelwise.settings import override

QUICK = ("training.epochs=3", "words.width=16", "encoder.units=8", "training.batch=8")


def method(name="bigru-lwan", *settings):
    return make_method(name, override({}, [*QUICK, *settings]))


@pytest.fixture(scope="module")
def world():
    return make_world(documents=120, labels=40, words=20)


@given(
    lengths=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    size=st.integers(1, 9),
    order=st.tuples(st.integers(0, 99)),
    buckets=st.booleans(),
)
def test_every_document_is_in_one_batch_of_an_epoch(lengths, size, order, buckets):
    batches = bucketed(np.array(lengths), size, order, buckets=buckets)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert max(map(len, batches)) <= size


def test_batches_of_similar_length_need_little_padding_and_change_with_the_epoch():
    lengths = np.random.default_rng(0).geometric(0.01, 2000)

    def padding(batches):
        return sum(len(batch) * lengths[batch].max() for batch in batches) / lengths.sum()

    assert padding(bucketed(lengths, 16, (1, 0))) < 1.2 < 2 < padding(bucketed(lengths, 16, (1, 0), buckets=False))
    assert not np.array_equal(bucketed(lengths, 16, (1, 0))[0], bucketed(lengths, 16, (1, 1))[0])


@given(
    rows=st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=8),
    chosen=st.lists(st.integers(0, 7), min_size=1, max_size=5),
)
def test_a_batch_holds_the_tokens_and_labels_of_its_documents(rows, chosen):
    gold = np.zeros((len(rows), 10), dtype=bool)
    for row, tokens in enumerate(rows):
        gold[row, tokens] = True
    examples = Examples([np.array(row, dtype=np.int32) for row in rows], csr_array(gold), [str(row) for row in range(len(rows))])
    wanted = np.array([row % len(rows) for row in chosen])
    tokens, targets = examples.batch(wanted)
    assert np.array_equal(targets.numpy().astype(bool), gold[wanted])
    for row, numbers, length in zip(wanted, tokens.numbers, tokens.lengths, strict=True):
        assert numbers[:length].tolist() == rows[row]
        assert not numbers[length:].any()
    assert examples.counts().tolist() == gold.sum(0).tolist()


def test_dev_scores_are_those_of_the_evaluation(world):
    model = method().fit(world.train, world.dev)
    best = next(epoch for epoch in reversed(model.history) if epoch["best"])
    everything = Splits(world.train, world.dev, world.dev)
    measured = evaluate(model, everything).groups["all"]
    assert best["dev"]["ndcg"] == pytest.approx(measured["ndcg@5"], abs=1e-6)
    assert best["dev"]["rp"] == pytest.approx(measured["rp@5"], abs=1e-6)


def test_the_loss_falls_and_the_history_tells(world):
    model = method("bigru-lwan", "training.epochs=8", "training.learning_rate=0.01").fit(world.train, world.dev)
    losses = [epoch["loss"] for epoch in model.history]
    assert losses[-1] < 0.6 * losses[0]
    assert [epoch["epoch"] for epoch in model.history] == list(range(1, len(losses) + 1))
    assert set(model.history[0]["dev"]) == {"loss", "rp", "ndcg"}


@pytest.mark.parametrize("monitor", ["loss", "rp", "ndcg"])
def test_training_stops_after_patience_and_goes_back_to_the_best_epoch(world, monitor):
    settings = ("training.epochs=60", "training.patience=2", "training.learning_rate=0.05", f"training.monitor={monitor}")
    model = method("cnn-lwan", *settings).fit(world.train, world.dev)
    found = [epoch["dev"][monitor] * (1 if monitor == "loss" else -1) for epoch in model.history]
    best = int(np.argmin(found))
    assert len(found) == best + 3 < 60
    assert [epoch["best"] for epoch in model.history][best:] == [True, False, False]
    again = method("cnn-lwan", *settings, f"training.epochs={best + 1}").fit(world.train, world.dev)
    assert np.array_equal(again.predict(world.test).dense(), model.predict(world.test).dense())


@pytest.mark.parametrize("dev", [True, False], ids=["best epoch", "last epoch"])
def test_a_running_mean_of_the_weights_is_what_is_kept(world, dev, monkeypatch):
    seen = []
    step = Trainer._step
    monkeypatch.setattr(Trainer, "_step", lambda self, rows: (step(self, rows), seen.append(self.weights[0].detach().clone()))[0])
    # With a patience of one epoch and a step far too large, the best epoch of two is the first.
    settings = (
        "training.average=0.6",
        "training.epochs=2",
        *(["training.patience=1", "training.learning_rate=0.1"] if dev else []),
    )
    model = method("bigru-lwan", *settings).fit(world.train, world.dev if dev else None)
    steps = len(seen) // 2 if dev and not model.history[-1]["best"] else len(seen)
    torch.manual_seed(1)
    mean = build(model.settings, torch.from_numpy(model._fitted.reader.table), len(world.labels)).token_encoder.layers[0]
    mean = mean.weight_ih_l0.detach()
    for number, weights in enumerate(seen[:steps]):
        old = min(0.6, (1 + number) / (10 + number))
        mean = old * mean + (1 - old) * weights
    torch.testing.assert_close(model._fitted.network.token_encoder.layers[0].weight_ih_l0.detach(), mean)


@pytest.mark.parametrize("dev", [True, False], ids=["best look", "last look"])
def test_from_some_epoch_on_the_plain_mean_of_the_weights_at_each_look_is_what_is_kept(world, dev, monkeypatch):
    looks = []
    judge = Trainer._judge
    monkeypatch.setattr(Trainer, "_judge", lambda self: (looks.append(self.weights[0].detach().clone()), judge(self))[1])
    settings = ("training.average_from=2", "training.judge_steps=5", "training.epochs=4", "training.learning_rate=0.02")
    model = method("attention-xml", *settings).fit(world.train, world.dev if dev else None)
    last = max(place for place, look in enumerate(model.history) if look["best"] or not dev)
    first = next(place for place, look in enumerate(model.history) if (look["epoch"], look["step"]) == (2, 12))
    assert first < last
    mean = torch.stack(looks[first : last + 1]).mean(0)
    torch.testing.assert_close(model._fitted.network.token_encoder.layers[0].weight_ih_l0.detach(), mean)


def test_before_that_epoch_the_weights_themselves_are_judged_and_kept(world):
    plain, averaged = (
        method("attention-xml", f"training.average_from={epochs}").fit(world.train, world.dev) for epochs in (0, 9)
    )
    assert np.array_equal(plain.predict(world.test).dense(), averaged.predict(world.test).dense())


def test_looks_within_an_epoch_are_lines_of_the_history_and_change_no_step(world):
    seldom, often = (
        method("bigru-lwan", f"training.judge_steps={steps}", "training.patience=99").fit(world.train, world.dev)
        for steps in (0, 5)
    )
    assert [(look["epoch"], look["step"]) for look in often.history] == [
        (epoch, step) for epoch in (1, 2, 3) for step in (5, 10, 12)
    ]
    for place, epoch in enumerate(seldom.history):
        looks = often.history[3 * place : 3 * place + 3]
        assert epoch["dev"] == looks[-1]["dev"]
        assert epoch["loss"] == pytest.approx(np.average([look["loss"] for look in looks], weights=[5, 5, 2]))


def test_patience_counts_looks(world):
    settings = ("training.judge_steps=1", "training.patience=4", "training.learning_rate=0.1", "training.epochs=99")
    looks = method("cnn-lwan", *settings).fit(world.train, world.dev).history
    assert [look["best"] for look in looks][-5:] == [True, False, False, False, False]
    assert min(look["dev"]["loss"] for look in looks) == looks[-5]["dev"]["loss"]


def test_reading_counts_in_the_budget_as_long_as_it_took_at_first(world, tmp_path, monkeypatch):
    given = ("training.epochs=4", "training.patience=50", "training.judge_steps=1", "budget=1")
    assert {look["epoch"] for look in method("bigru-lwan", *given).fit(world.train, world.dev).history} == {1, 2, 3, 4}
    with monkeypatch.context() as patch:  # as if reading took a minute
        patch.setattr(neural, "time", SimpleNamespace(monotonic=lambda: time.monotonic() - 60))
        slow = method("bigru-lwan", *given)
        slow.work = tmp_path
        assert {look["epoch"] for look in slow.fit(world.train, world.dev).history} == {1}  # whole, for all its many looks
    again = method("bigru-lwan", *given)
    again.work = tmp_path
    assert again.fit(world.train, world.dev).history == slow.history


@given(st.lists(st.floats(-3, 1).map(lambda power: 10**power), min_size=6, max_size=20))
@example([0.01] * 6 + [10.0] * 3)
def test_gradients_are_clipped_by_the_longest_of_the_last_five(lengths):
    queue, norms = deque([np.inf], maxlen=5), torch.tensor(State().norms)
    direction = np.array([0.6, 0.0, -0.8])
    for length in lengths:
        gradients = [torch.tensor(length * part, dtype=torch.float32) for part in (direction[:1], direction[1:].reshape(2, 1))]
        norms = clip_by_last(gradients, norms)
        longest = max(queue)
        queue.append(min(length, 2 * longest, 1))
        clipped = torch.cat([gradient.flatten() for gradient in gradients]).numpy()
        assert clipped == pytest.approx(direction * min(length, 5 * longest), rel=2e-3)


def test_one_wild_gradient_is_tamed_in_training(world, monkeypatch):
    loss, step, norms = LabelNetwork.loss, Trainer._step, []

    def wild(self, *given, **more):
        return loss(self, *given, **more) * (1e5 if len(norms) == 9 else 1)

    def watched(self, rows):
        found = step(self, rows)
        norms.append(sum(float(weight.grad.square().sum()) for weight in self.weights if weight.grad is not None) ** 0.5)
        return found

    monkeypatch.setattr(LabelNetwork, "loss", wild)
    monkeypatch.setattr(Trainer, "_step", watched)
    method("attention-xml", "training.epochs=1").fit(world.train)
    assert norms[9] == pytest.approx(5 * max(norms[4:9]), rel=1e-4)
    assert max(norms[10:]) < norms[9]


def test_steps_in_parts_are_the_same_steps(world):
    settings = ("encoder.dropout=0", "training.epochs=2")
    whole, parts = (method("bigru-lwan", *settings, f"training.accumulate={n}").fit(world.train) for n in (1, 3))
    assert parts.predict(world.test).dense() == pytest.approx(whole.predict(world.test).dense(), abs=1e-4)


def scores_of_unseen(world, rule, name="bigru-lwan"):
    model = method(name, f"training.unseen={rule}", "training.epochs=12", "training.learning_rate=0.01").fit(
        world.train, world.dev
    )
    unseen = np.bincount(world.train.gold().indices, minlength=len(world.labels)) == 0
    assert unseen.any()
    return model.predict(world.test).dense()[:, unseen]


def test_unseen_labels_are_pushed_down_as_negatives_and_not_scored_by_a_flat_network_otherwise():
    world = make_world(documents=150, labels=120, words=20)
    negatives = scores_of_unseen(world, "negatives")
    assert (negatives > 0).all()
    assert negatives.mean() < 0.05
    assert not scores_of_unseen(world, "masked").any()
    assert not scores_of_unseen(world, "excluded").any()


def test_unseen_labels_are_left_alone_by_a_network_that_reads_their_names():
    world = make_world(documents=150, labels=120, words=20)
    negatives, masked, excluded = (scores_of_unseen(world, rule, "gc-bigru-lwan") for rule in ("negatives", "masked", "excluded"))
    assert masked.mean() > 1.2 * negatives.mean()
    assert not np.allclose(masked, excluded)  # the graph of labels has fewer edges


def test_gold_of_dev_and_test_changes_nothing_but_when_training_stops(world):
    other = make_world(documents=120, labels=40, words=20, seed=9).dev.with_labels(world.labels)
    with_dev, with_other = (method("gc-bigru-lwan", "training.patience=99").fit(world.train, dev) for dev in (world.dev, other))
    assert [epoch["loss"] for epoch in with_dev.history] == [epoch["loss"] for epoch in with_other.history]


def test_too_little_memory_says_what_to_lower(world, monkeypatch):
    def full(self, *given, **more):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\nand a long story")

    monkeypatch.setattr(LabelNetwork, "loss", full)
    with pytest.raises(LabelwiseError, match=r"out of memory on cpu with 8 documents of up to \d+ tokens: lower training\.batch"):
        method().fit(world.train, world.dev)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(BadSettings, match=r"device 'tpu' is not to be had here \(there is: .*cpu\); use device=auto"):
        choose_device("tpu")


def test_training_ends_within_its_budget_with_the_best_so_far(world):
    model = method("bigru-lwan", "training.epochs=10000", "training.patience=10000", "budget=0.03")
    begun = time.monotonic()
    model.fit(world.train, world.dev)
    assert time.monotonic() - begun < 10
    assert 1 <= len(model.history) < 10_000
    assert np.isfinite(model.predict(world.test).dense()).all()


def test_biases_may_start_at_the_log_odds_of_the_labels(world):
    settings = ("training.epochs=1", "training.learning_rate=0.000001", "labels.start=prior")
    model = method("bigru-lwan", *settings).fit(world.train)
    share = (np.bincount(world.train.gold().indices, minlength=len(world.labels)) + 0.5) / (len(world.train) + 1)
    assert model.predict(world.test).dense().mean(0) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("monitor", ["loss", "rp", "ndcg"])
def test_without_development_documents_all_epochs_count(world, monitor):
    settings = ("training.epochs=3", "training.learning_rate=0.01", f"training.monitor={monitor}")
    whole = method("cnn-lwan", *settings).fit(world.train)
    assert len(whole.history) == 3
    first = method("cnn-lwan", *settings, "training.epochs=1").fit(world.train)
    assert not np.array_equal(whole.predict(world.test).dense(), first.predict(world.test).dense())
    none = method("cnn-lwan", *settings).fit(world.train, world.dev[:0])
    assert np.array_equal(none.predict(world.test).dense(), whole.predict(world.test).dense())


def test_development_documents_without_labels_serve_the_loss_only(world):
    bare = Corpus([Document(document.id, document.text) for document in world.dev], world.labels, world.info)
    assert set(method("cnn-lwan").fit(world.train, bare).history[0]["dev"]) == {"loss"}
    with pytest.raises(LabelwiseError, match=r"no development document has a label, so training\.monitor=rp says nothing"):
        method("cnn-lwan", "training.monitor=rp").fit(world.train, bare)


@given(lengths=st.lists(st.integers(0, 200_000), max_size=40), batch=st.integers(1, 300))
def test_prediction_takes_the_longest_first_in_batches_of_bounded_size(lengths, batch):
    batches = prediction_batches(np.array(lengths, dtype=np.int64), TrainingSettings(batch=batch))
    rows = np.concatenate([*batches, []]).astype(int).tolist()
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    assert all(len(one) == 1 or len(one) * lengths[one[0]] <= 2**16 for one in batches)


@pytest.mark.parametrize(
    "setting", ["encoder.cell=lstm", "encoder.start=learned", "attention=first", "decoder=mlp", "training.precision=bfloat16"]
)
def test_other_parts_train_too(world, setting):
    model = method("bigru-lwan", setting, "training.learning_rate=0.01").fit(world.train, world.dev)
    assert model.history[-1]["loss"] < model.history[0]["loss"]
    assert len(np.unique(model.predict(world.test).dense())) > 0.9 * len(world.test) * len(world.labels)


def test_determinism_and_threads_are_each_models_own(world):
    method("cnn-lwan", "deterministic=true", "threads=1").fit(world.train)
    assert torch.are_deterministic_algorithms_enabled()
    method("cnn-lwan").fit(world.train)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_look_may_take_some_of_the_development_documents(world):
    all_of_them, some = (method("bigru-lwan", f"training.judged={count}").fit(world.train, world.dev).history for count in (0, 7))
    chosen = [world.dev[place * len(world.dev) // 7] for place in range(7)]
    alone = method("bigru-lwan").fit(world.train, Corpus(chosen, world.labels)).history
    assert [look["dev"]["loss"] for look in some] == pytest.approx([look["dev"]["loss"] for look in alone])
    assert [look["loss"] for look in some] == [look["loss"] for look in all_of_them]
    assert [look["dev"] for look in some] != [look["dev"] for look in all_of_them]


def test_a_look_takes_documents_that_have_labels_where_these_are_ranked(world):
    dev = Corpus([replace(document, labels=()) for document in world.dev[1:]] + [world.dev[0]], world.labels)
    history = method("bigru-lwan", "training.judged=2", "training.monitor=ndcg").fit(world.train, dev).history
    assert all(0 <= look["dev"]["ndcg"] <= 1 for look in history)


def test_a_network_may_read_some_of_the_training_documents(world):
    some = method("bigru-lwan", "training.documents=20").fit(world.train, world.dev).predict(world.test).dense()
    spread = method().fit(world.train.spread(20), world.dev).predict(world.test).dense()
    np.testing.assert_array_equal(some, spread)
    assert (some != method().fit(world.train, world.dev).predict(world.test).dense()).any()
