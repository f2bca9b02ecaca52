"""Label-wise attention with its loss, forward and backward, beside the plain formulation: time, extra memory, error.

With a GPU in bfloat16 at four sizes, the largest without the plain one, with values that are the keys, as most methods have
them, and with others; without a GPU in float32 on the CPU.
"""

import statistics
import timeit
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from record import record
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from labelwise.network.attention import attend, attend_loss

SIZES = [(16, 512, 768, 4271), (8, 2000, 600, 8771), (32, 512, 768, 14268), (32, 512, 768, 100_000)]
GPU = torch.cuda.is_available()

Loss = Callable[[list[Tensor], Tensor, Tensor], Tensor]


def plain(keys: Tensor, values: Tensor, query: Tensor, output: Tensor, padding: Tensor) -> Tensor:
    """With the softmax in float32 or better, as ours has it; padding (batch, 1, length)."""
    scores = torch.einsum("ld,btd->blt", query, keys).to(torch.promote_types(keys.dtype, torch.float32))
    weights = scores.masked_fill(padding, -torch.inf).softmax(-1).to(keys.dtype)
    return (torch.einsum("blt,btd->bld", weights, values) * output).sum(-1)


def padding_of(lengths: Tensor, keys: Tensor) -> Tensor:
    return (torch.arange(keys.shape[1]) >= lengths[:, None, None]).to(keys.device)


def in_plain_steps(inputs: list[Tensor], padding: Tensor, targets: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(plain(*inputs, padding).float(), targets)


def in_two_steps(inputs: list[Tensor], lengths: Tensor, targets: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(attend(*inputs, lengths), targets)


def in_one_step(bias: Tensor, inputs: list[Tensor], lengths: Tensor, targets: Tensor) -> Tensor:
    return attend_loss(*inputs, bias, lengths, targets)


def draw(batch: int, length: int, width: int, labels: int, shared: bool = False) -> tuple[list[Tensor], Tensor]:
    """Keys, values, query and output with scores of spread 2, so that some words matter more to a label; and targets."""
    how = {"device": "cuda", "dtype": torch.bfloat16} if GPU else {"device": "cpu", "dtype": torch.float32}
    words = torch.randn(2, batch, length, width, **how)
    vectors = torch.randn(2, labels, width, **how) * 2 / width**0.5
    targets = (torch.rand(batch, labels, device=how["device"]) < 10 / labels).float()
    keys, values, query, output = (x.clone().requires_grad_() for x in (*words, *vectors))
    return [keys, keys if shared else values, query, output], targets


def measure(loss: Loss, inputs: list[Tensor], real: Tensor, targets: Tensor, passes: int) -> tuple[float, float]:
    """Seconds of a forward and backward pass, and the extra GiB of GPU memory; `real` is lengths or padding, as the loss wants.

    The median of three times some passes back to back, as in training: a GPU still works on one while the next is prepared.
    """

    def run() -> None:
        for _ in range(passes):
            for x in inputs:
                x.grad = None
            loss(inputs, real, targets).backward()

    run()
    for x in inputs:
        x.grad = None
    if not GPU:
        return statistics.median(timeit.repeat(run, number=1, repeat=3)) / passes, 0.0
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    times = []
    for _ in range(3):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        run()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) / 1000 / passes)
    return statistics.median(times), round((torch.cuda.max_memory_allocated() - held) / 2**30, 3)


def played(loss: Loss, inputs: list[Tensor], real: Tensor, targets: Tensor, passes: int = 20) -> float:
    """Milliseconds of a pass that was recorded and is played back: what the GPU needs, without Python's part."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        loss(inputs, real, targets).backward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    for x in inputs:
        x.grad = None
    with torch.cuda.graph(graph):
        loss(inputs, real, targets).backward()
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    before.record()
    for _ in range(passes):
        graph.replay()
    after.record()
    after.synchronize()
    return round(before.elapsed_time(after) / passes, 2)


def error(inputs: list[Tensor]) -> float:
    """Largest relative error of logits and gradients against float64, on two documents and some labels."""
    some = [x.detach()[:size].requires_grad_() for x, size in zip(inputs, (2, 2, 1000, 1000), strict=True)]
    exact = [x.detach().double().requires_grad_() for x in some]
    if inputs[1] is inputs[0]:
        some[1], exact[1] = some[0], exact[0]
    lengths = torch.tensor([some[0].shape[1], some[0].shape[1] // 3])
    found, expected = attend(*some, lengths), plain(*exact, padding_of(lengths, some[0]))
    slopes = torch.randn_like(expected)
    ours = (found, *torch.autograd.grad((found * slopes).sum(), some))
    theirs = (expected, *torch.autograd.grad((expected * slopes).sum(), exact))
    return float(f"{max(((x - y).norm() / y.norm()).item() for x, y in zip(ours, theirs, strict=True)):.1e}")


def on_gpu() -> None:
    for (batch, length, width, labels), shared in product(SIZES, (True, False)):
        inputs, targets = draw(batch, length, width, labels, shared)
        lengths = torch.full((batch,), length)
        ours = partial(in_one_step, torch.zeros_like(targets[0]))
        taken, extra = measure(ours, inputs, lengths, targets, 20)
        found = {"milliseconds": round(1000 * taken, 2), "extra_gib": extra}
        if labels < 100_000:
            padding = padding_of(lengths, inputs[0])
            plainly, extra = measure(in_plain_steps, inputs, padding, targets, 20)
            found |= {
                "plain_milliseconds": round(1000 * plainly, 2),
                "plain_extra_gib": extra,
                "ratio": round(plainly / taken, 2),
                "gpu_milliseconds": played(ours, inputs, lengths, targets),
                "plain_gpu_milliseconds": played(in_plain_steps, inputs, padding, targets),
            }
        size = f"batch {batch}, length {length}, width {width}, {labels} labels" + ", values = keys" * shared
        record("label-attention", method=size, dtype="bfloat16", **found, error=error(inputs), gpu=torch.cuda.get_device_name())


def on_cpu() -> None:
    batch, length, width, labels = 16, 512, 600, 4271
    drawn = torch.exp(torch.randn(batch) * 0.8 + torch.tensor(100.0).log()).long().clamp(1, length)
    for kind, lengths in {"median length 100": drawn, "length 512": torch.full((batch,), length)}.items():
        inputs, targets = draw(batch, length, width, labels)
        ways = partial(in_one_step, torch.zeros_like(targets[0])), in_two_steps
        one, two = (measure(loss, inputs, lengths, targets, 1)[0] for loss in ways)
        plainly, _ = measure(in_plain_steps, inputs, padding_of(lengths, inputs[0]), targets, 1)
        record(
            "label-attention",
            method=f"batch {batch}, {kind}, width {width}, {labels} labels",
            dtype="float32",
            words=int(lengths.sum()),
            threads=torch.get_num_threads(),
            seconds=round(one, 3),
            two_step_seconds=round(two, 3),
            plain_seconds=round(plainly, 3),
            ratio=round(plainly / one, 1),
            error=error(inputs),
        )


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.autograd.set_multithreading_enabled(False)  # as in training
    on_gpu() if GPU else on_cpu()
