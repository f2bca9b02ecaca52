"""How fast networks train: BIGRU-LWAN on a GPU by batch size and beside the plain formulation on a CPU, DC- with either GRU.

Plain means: a score for every label and position of the padded batch, softmax with a mask, a vector per label and document, and
what autograd keeps of all that. Both take the same steps on the same batches of a made world or of crs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from record import record
from torch import Tensor

import labelwise
from labelwise.datasets.worlds import make_world
from labelwise.features.vectors import WordVectors
from labelwise.features.words import tokenize
from labelwise.network.batches import Examples, bucketed
from labelwise.network.composition import EncoderSettings, NetworkSettings, build
from labelwise.network.decoders import Decoder, DotDecoder
from labelwise.network.reading import LabelAttention
from labelwise.network.token_encoders import Tokens
from labelwise.registry import make_method

LABELS = 4271
LONGEST = 512


class PlainAttention(LabelAttention):
    """The textbook's way."""

    def dot(self, states: Tensor, query: Tensor, output: Tensor, lengths: Tensor) -> Tensor:
        scores = torch.einsum("bth,lh->blt", states, query)
        real = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        weights = scores.masked_fill(~real[:, None], -1e9).softmax(-1)
        return (torch.einsum("blt,bth->blh", weights, states) * output).sum(-1)


class PlainDecoder(DotDecoder):
    """A dot product whose loss is made from its logits."""

    loss = Decoder.loss


def examples(corpus: labelwise.Corpus, vectors: WordVectors) -> Examples:
    numbers = [vectors.numbers(tokenize(document.text)[:LONGEST]) for document in corpus]
    return Examples(numbers, corpus.gold(), [document.id for document in corpus])


def step_seconds(network: torch.nn.Module, batches: list[tuple[Tokens, Tensor]]) -> list[float]:
    """Seconds of whole training steps, Adam's included; the first is warm-up."""
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    seconds = []
    for tokens, targets in [batches[0], *batches]:
        started = time.perf_counter()
        optimizer.zero_grad()
        network.loss(tokens, targets).backward()
        torch.nn.utils.clip_grad_value_(network.parameters(), 5.0)
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def on_cpu(threads: int, steps: int, corpus: labelwise.Corpus, name: str) -> None:
    torch.set_num_threads(threads)
    vectors = WordVectors.learn((document.text for document in corpus), width=200, seed=1)
    train = examples(corpus, vectors)
    for order, buckets in (("shuffled", False), ("by length", True)):
        rows = bucketed(train.lengths, 16, (1, 0), buckets=buckets)[:steps]
        batches = [train.batch(one) for one in rows]
        found = {}
        for who in ("ours", "plain"):
            torch.manual_seed(1)
            network = build(
                NetworkSettings(encoder=EncoderSettings(dropout=0.4)), torch.from_numpy(vectors.vectors), train.labels
            )
            if who == "plain":
                network.attention, network.decoder = PlainAttention(), PlainDecoder()
            found[who] = statistics.median(step_seconds(network, batches))
        record(
            "train-step",
            corpus=name,
            method=f"batches {order}",
            threads=threads,
            labels=train.labels,
            batch=16,
            tokens=round(float(np.mean([train.lengths[one].sum() for one in rows]))),
            padded_tokens=round(float(np.mean([16 * train.lengths[one].max() for one in rows]))),
            seconds=round(found["ours"], 3),
            plain_seconds=round(found["plain"], 3),
            ratio=round(found["plain"] / found["ours"], 2),
        )


def on_gpu(corpus: labelwise.Corpus, vectors: str, batch: int, method: str = "bigru-lwan", fused: bool = False) -> None:
    """Documents per second of the second epoch: the first compiles kernels."""
    settings = {
        "words": {"vectors": vectors, "max_length": LONGEST},
        "training": {"batch": batch, "epochs": 2},
        "encoder": {"fused": fused},
    }
    history = make_method(method, settings).fit(corpus).history  # type: ignore[attr-defined]
    record(
        "train-speed",
        corpus=corpus.info.name,
        method=f"{method}, batch {batch}" + ", GRU in one kernel" * fused,
        labels=len(corpus.labels),
        documents=len(corpus),
        documents_per_second=history[-1]["documents_per_second"],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds the crs corpus")
    parser.add_argument("--vectors", default=os.environ.get("LABELWISE_VECTORS", "corpus"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--documents", type=int, default=6000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if torch.cuda.is_available():
        if given.data is None:
            print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA")
        else:
            train = labelwise.read_corpus(Path(given.data) / "crs").train
            for batch in (16, 64, 256, 1024):
                on_gpu(train[: given.documents * max(1, batch // 64)], given.vectors, batch)
            for fused in (False, True):
                on_gpu(train[: given.documents], given.vectors, 64, "dc-bigru-lwan", fused)
    else:
        on_cpu(given.threads, given.steps, make_world(documents=3000, labels=LABELS, words=160).train, "world")
        if given.data is not None:
            train = labelwise.read_corpus(Path(given.data) / "crs").train
            on_cpu(given.threads, given.steps, train[:3000], "crs")
