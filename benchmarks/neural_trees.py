"""How far networks on label trees reach: training and prediction speed and GPU memory as the labels grow, beside flat networks.

Documents and trees are random: what a step costs does not depend on what they say. Of networks with an encoder for each level the
last stage is measured, the dearest. Memory beyond weights and moments is what a batch needs, gradients included; it goes with the
nodes that are scored for a document.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from record import record
from scipy.sparse import csr_array

from labelwise.methods.bert import BertTree
from labelwise.methods.lwan import AttentionXml
from labelwise.methods.neural_tree import ClusterSettings, with_levels
from labelwise.network.batches import Examples
from labelwise.network.composition import EncoderSettings, build
from labelwise.network.devices import choose_device, precision
from labelwise.network.network import LabelNetwork
from labelwise.network.training import Trainer
from labelwise.network.tree_network import TreeNetwork
from labelwise.network.tree_training import TreeTrainer, stages
from labelwise.progress import silent
from labelwise.trees.tree import LabelTree

DEVICE = choose_device("auto")
GPU = DEVICE.type == "cuda"
SIZES = (4_000, 14_000, 100_000, 500_000) if GPU else (300, 2_000)
WORDS, WIDTH, LENGTH = (50_000, 300, 500) if GPU else (1_000, 20, 30)
GOLD = 5  # labels of a document
SECONDS = 2.0  # at most for the steps that are timed, and for the predictions


def random_tree(labels: int, given: ClusterSettings) -> LabelTree:
    """As large as the settings make it, with labels anywhere."""
    halvings = max(1, int(np.ceil(np.log2(labels / given.leaf))))
    parents = [np.arange(2**level, dtype=np.int32) // 2 for level in range(1, halvings + 1)]
    last = np.sort(np.arange(labels, dtype=np.int32) % 2**halvings)
    places = np.random.default_rng(1).permutation(labels).astype(np.int32)
    return with_levels(LabelTree((*parents, last), places), first=given.first, arity=given.arity)


def random_examples(documents: int, labels: int, words: int) -> Examples:
    """Documents of one length with some labels each."""
    random = np.random.default_rng(2)
    pairs = np.repeat(np.arange(documents), GOLD), random.integers(labels, size=documents * GOLD)
    gold = csr_array((np.ones(documents * GOLD, dtype=bool), pairs), shape=(documents, labels))
    numbers = random.integers(1, words, size=(documents, LENGTH)).astype(np.int32)
    return Examples(list(numbers), gold, [""] * documents)


def make(name: str, labels: int) -> tuple[Any, LabelNetwork]:
    """Settings, and a network of their parts with its first weights."""
    torch.manual_seed(1)
    given, transformer = (BertTree if name == "bert-tree" else AttentionXml).Settings(), None
    if name == "bert-tree":
        from transformers import BertConfig, BertModel

        small = {} if GPU else {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        transformer = BertModel(BertConfig(attn_implementation="sdpa", **small), add_pooling_layer=False), 0
    elif not GPU:
        given = replace(given, mlp=(16,), encoder=EncoderSettings(cell="lstm", start="learned", units=8))
    network = build(given, torch.randn(WORDS, WIDTH), labels, transformer=transformer)
    if name == "attention-xml flat":  # every label is in the loss, as if each had a document
        given = replace(given, training=replace(given.training, unseen="negatives"))
    else:
        network = TreeNetwork.over(network, random_tree(labels, given.tree), top=given.tree.top, shared=name == "bert-tree")
    return given, network


def rate(work: Callable[[int], object], documents: int) -> float:
    """Documents a second, after two rounds to warm up."""
    for number in range(2):
        work(number)
    if GPU:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begun, rounds = time.perf_counter(), 0
    while rounds < 40 and time.perf_counter() - begun < SECONDS:
        work(rounds)
        rounds += 1
        if GPU:
            torch.cuda.synchronize()
    return round(rounds * documents / (time.perf_counter() - begun), 1)


def scored(network: LabelNetwork, labels: int) -> int:
    """Nodes that are scored for a document, empty slots counted."""
    if not isinstance(network, TreeNetwork):
        return labels
    found = [len(network.tree.parents[0])]
    for slots in network.slots[1:]:
        found.append(min(network.top, found[-1]) * slots)
    return sum(found)


def gib(size: int) -> float:
    return round(size / 2**30, 3)


def measure(name: str, labels: int) -> None:
    """Train some steps, predict some batches, and record speed and memory."""
    given, network = make(name, labels)
    batch, tree = given.training.batch, isinstance(network, TreeNetwork)
    if isinstance(network, TreeNetwork):
        *_, (_, _, network) = stages(network, given.tree.stages)
    examples = random_examples(8 * batch, labels, 30_000 if name == "bert-tree" else WORDS)
    kind = TreeTrainer if tree else Trainer
    trainer = kind(network, given.training, examples, None, seed=1, device=DEVICE, progress=silent)
    trainer.norms = torch.tensor(trainer.state.norms, device=DEVICE)
    network.train()
    trained = rate(lambda number: trainer._step(np.arange(batch) + batch * (number % 8)), batch)
    peak = torch.cuda.max_memory_allocated() if GPU else 0
    moments = [value for state in trainer.optimizer.state.values() for value in state.values()]
    held = sum(tensor.nbytes for tensor in [*network.parameters(), *network.buffers(), *moments])
    trainer.optimizer.zero_grad(set_to_none=True)
    network.eval()

    @torch.no_grad()
    def predict(number: int) -> object:
        tokens = examples.tokens(np.arange(4 * batch) + 4 * batch * (number % 2))
        with precision("auto", DEVICE, predicting=name == "bert-tree"):
            if isinstance(network, TreeNetwork):
                *_, found = network.walk(tokens)
                return found.nodes.cpu(), found.chances.cpu()
            return network(tokens).float().sigmoid().cpu()

    predicted = rate(predict, 4 * batch)
    record(
        "neural trees",
        method=name,
        labels=labels,
        nodes=[len(nodes) for nodes in network.tree.parents] if isinstance(network, TreeNetwork) else [labels],
        scored=scored(network, labels),
        batch=batch,
        length=LENGTH,
        train_documents_per_second=trained,
        predict_documents_per_second=predicted,
        peak_gib=gib(peak),
        beyond_weights_and_moments_gib=gib(max(0, peak - held)),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--methods", nargs="+", default=["attention-xml tree", "attention-xml flat", "bert-tree"])
    given = parser.parse_args()
    for labels in given.labels:
        for name in given.methods:
            try:
                measure(name, labels)
            except torch.OutOfMemoryError as error:
                record("neural trees", method=name, labels=labels, failed=str(error).splitlines()[0])
            gc.collect()  # the networks before are not to be in the memory that is measured
            if GPU:
                torch.cuda.empty_cache()
