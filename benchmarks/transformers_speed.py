"""How fast transformers train on a GPU and predict on a CPU, beside plain loops with the same encoder.

On a GPU: an encoder of BERT-base's size with random weights, 4,271 labels. Plain means the first state, a linear layer, autocast
and AdamW, all as the libraries give them, with no label attention and on shuffled batches. On a CPU: MiniLM's size, prediction,
beside the pipeline of the transformers library; whoever has the real weights names their folder.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import record
from scipy.sparse import csr_array
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import labelwise
from labelwise.features.subwords import Subwords, quiet
from labelwise.network.batches import Examples, bucketed
from labelwise.network.composition import EncoderSettings, NetworkSettings, build
from labelwise.network.training import Trainer, TrainingSettings
from labelwise.progress import silent
from labelwise.registry import make_method

LABELS, LONGEST, BATCH, STEPS = 4271, 512, 32, 60
WARM = 180  # steps before any is timed: in fewer, some shapes would not have been recorded yet


def bert(layers: int = 12, width: int = 768, heads: int = 12) -> nn.Module:
    """An encoder of that size, random."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width, vocab_size=30522
    )
    return BertModel(config, add_pooling_layer=False)


def made_examples(lengths: np.ndarray) -> Examples:
    """Random tokens and six random labels for each length."""
    random = np.random.default_rng(1)
    numbers = [random.integers(1000, 30000, length).astype(np.int32) for length in lengths]
    rows, columns = np.repeat(np.arange(len(lengths)), 6), random.integers(0, LABELS, 6 * len(lengths))
    gold = csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(len(lengths), LABELS))
    return Examples(numbers, gold, [str(row) for row in range(len(lengths))])


def per_second(step: Callable[[np.ndarray], Any], batches: list[np.ndarray]) -> float:
    """Documents per second of some steps after some to warm up."""
    for rows in batches[:WARM]:
        step(rows)
    torch.cuda.synchronize()
    started, done = time.perf_counter(), 0
    for rows in batches[WARM:]:
        step(rows)
        done += len(rows)
    torch.cuda.synchronize()
    return done / (time.perf_counter() - started)


def plainly(examples: Examples) -> float:
    """The usual loop: pad to the longest, autocast, first state, linear layer, AdamW."""
    model = bert().cuda().train()
    head = nn.Linear(768, LABELS).cuda()
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=2e-5)
    examples.to(torch.device("cuda"))

    def step(rows: np.ndarray) -> None:
        tokens, targets = examples.batch(rows)
        mask = (torch.arange(tokens.numbers.shape[1]) < tokens.lengths[:, None]).long().cuda()
        with torch.autocast("cuda", torch.bfloat16):
            logits = head(model(input_ids=tokens.numbers, attention_mask=mask).last_hidden_state[:, 0])
        binary_cross_entropy_with_logits(logits.float(), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return per_second(step, bucketed(examples.lengths, BATCH, (1, 0), buckets=False))


def ours(examples: Examples, *, recorded: bool) -> float:
    """Steps of the training loop: BERT-LWAN with its label head and loss."""
    settings = NetworkSettings(encoder=EncoderSettings(kind="transformer"), training=TrainingSettings(batch=BATCH, clip_value=0))
    network = build(settings, torch.empty(0, 768), LABELS, transformer=(bert(), 0))
    device = torch.device("cuda")
    trainer = Trainer(network, settings.training, examples, None, seed=1, device=device, progress=silent)
    network.train()
    if recorded:
        network.token_encoder.record(True)
    return per_second(trainer._step, bucketed(examples.lengths, BATCH, (1, 0)))


def on_gpu(folder: str | None, wanted: list[str]) -> None:
    documents = (WARM + STEPS) * BATCH
    lengths = {"all 512": np.full(documents, LONGEST)} if "512" in wanted else {}
    if folder is not None:
        for corpus in (name for name in wanted if name != "512"):
            words = [len(document.text.split()) for document in labelwise.read_corpus(Path(folder) / corpus).train]
            # As many sub-words as words and a third more, a usual share, since the vocabulary here is random.
            lengths[corpus] = np.minimum((np.resize(words, documents) * 4 / 3 + 2).astype(np.int64), LONGEST)
    for name, given in lengths.items():
        plain = plainly(made_examples(given))
        for recorded in (False, True):
            found = ours(made_examples(given), recorded=recorded)
            record(
                "transformer-training",
                method=f"lengths: {name}" + ", recorded" * recorded,
                tokens=round(float(given.mean())),
                labels=LABELS,
                batch=BATCH,
                documents_per_second=round(found),
                plain_documents_per_second=round(plain),
                ratio=round(found / plain, 2),
                gpu=torch.cuda.get_device_name(),
            )


def small_folder(folder: Path, texts: list[str]) -> Path:
    """An encoder of MiniLM's size with random weights and a vocabulary of the texts."""
    from transformers import PreTrainedTokenizerFast

    from labelwise.network.masked_model import learn_vocabulary

    bert(6, 384, 12).save_pretrained(folder)
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    PreTrainedTokenizerFast(tokenizer_object=learn_vocabulary(texts, 30000), **marks).save_pretrained(folder)
    return folder


def pipeline_of(folder: Path, labels: int) -> Callable[[list[str]], Any]:
    """What most people write."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=labels, problem_type="multi_label_classification"
    )
    classify = pipeline(
        "text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(folder), top_k=5, device="cpu"
    )
    return lambda texts: classify(texts, truncation=True, max_length=LONGEST)


def beside_pipeline(folder: Path, splits: labelwise.Splits, threads: int, documents: int) -> dict[str, Any]:
    """Documents per second of both, medians of three rounds in turns."""
    some = splits.test[:documents]
    texts = [document.text for document in some]
    settings = {"threads": threads, "encoder": {"checkpoint": str(folder)}, "training": {"epochs": 1, "batch": 8}}
    model = make_method("bert-base", settings).fit(splits.train[:64])
    classify = pipeline_of(folder, len(splits.labels))
    times: dict[str, list[float]] = {"ours": [], "pipeline": []}
    for _ in range(3):
        for who, run in {"ours": lambda: model.predict(some), "pipeline": lambda: classify(texts)}.items():
            started = time.perf_counter()
            run()
            times[who].append(time.perf_counter() - started)
    ours, theirs = (statistics.median(times[who]) for who in ("ours", "pipeline"))
    return {
        "documents": len(texts),
        "tokens": round(float(np.mean([len(row) for row in Subwords.read(str(folder)).numbers(texts, LONGEST - 2)]))),
        "labels": len(splits.labels),
        "documents_per_second": round(len(texts) / ours, 1),
        "pipeline_documents_per_second": round(len(texts) / theirs, 1),
        "ratio": round(theirs / ours, 2),
    }


def on_cpu(data: str, checkpoint: str | None, threads: int, documents: int) -> None:
    torch.set_num_threads(threads)
    for corpus in ("eurlex", "crs", "ctgov"):
        splits = labelwise.read_corpus(Path(data) / corpus)
        with tempfile.TemporaryDirectory() as place, quiet():
            folder = Path(checkpoint) if checkpoint else small_folder(Path(place), [document.text for document in splits.dev])
            found = beside_pipeline(folder, splits, threads, documents)
        name = "MiniLM" if checkpoint else "random, MiniLM's size"
        record("transformer-prediction", corpus=corpus, method=name, threads=threads, **found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("LABELWISE_DATA"), help="folder that holds corpus folders")
    parser.add_argument("--checkpoint", default=os.environ.get("LABELWISE_MINILM"), help="folder of MiniLM, for prediction")
    parser.add_argument("--lengths", nargs="+", default=["512", "crs", "ctgov"], help="on a GPU: 512, or a corpus's own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--documents", type=int, default=256)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if torch.cuda.is_available():
        on_gpu(given.data, given.lengths)
    elif given.data is None:
        print("skipped: name the corpora with --data FOLDER or LABELWISE_DATA")
        sys.exit()
    else:
        on_cpu(given.data, given.checkpoint, given.threads, given.documents)
