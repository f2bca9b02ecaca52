"""ELMo: vectors of words in their context, from the letters of the words and a language model in each direction.

Peters et al. 2018, SPEC 1.2. The model is frozen, and every document starts from an empty state; only the scalars that mix its
layers are trained. Options and weights are read as published, and parameters keep the values and the gate order of that file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from annotated_types import Ge
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

from labelwise.errors import BadFile, BadModel
from labelwise.network.token_encoders import mask_of
from labelwise.network.transfer import send
from labelwise.storage import open_bytes

# A letter is a byte; these follow the 256 bytes. All are raised by 1 in the end, so that 0 is where there is no word.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, 261)

WORDS = 1024  # words whose letters are read at once: the widest convolution takes 0.2 MB for each
STEPS = 64  # steps whose inputs are multiplied at once: one large product, without holding all gates of long documents
DOCUMENTS, PLACES = 64, 1 << 15  # of a batch at most, padding included: the layers of a place are 12 kB in the published model

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}

Positive = Annotated[int, Ge(1)]
State = tuple[Tensor, Tensor]  # hidden (2, batch, projection), memory (2, batch, units): forward, then backward


@dataclass(frozen=True)
class EmbeddingOptions:
    """`char_cnn.embedding` of an options file."""

    dim: Positive


@dataclass(frozen=True)
class CharacterOptions:
    """`char_cnn` of an options file: how letters become the vector of a word."""

    embedding: EmbeddingOptions
    filters: list[tuple[Positive, Positive]]  # letters that a filter spans, number of such filters
    activation: Literal["relu", "tanh"]
    n_highway: Annotated[int, Ge(0)]
    n_characters: Annotated[int, Ge(PADDING + 2)]
    max_characters_per_token: Annotated[int, Ge(3)]


@dataclass(frozen=True)
class RecurrentOptions:
    """`lstm` of an options file: how words come to know of each other."""

    dim: Positive
    projection_dim: Positive
    n_layers: Positive
    cell_clip: float | None
    proj_clip: float | None
    use_skip_connections: bool


@dataclass(frozen=True)
class Options:
    """What an options file says of the model; whatever it says of its training is left aside."""

    char_cnn: CharacterOptions
    lstm: RecurrentOptions


class Elmo(nn.Module):
    """Documents to all layers of the language model, the vectors without context first."""

    boundaries: Tensor

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options, self.most = options, options.char_cnn.max_characters_per_token
        self.skip = options.lstm.use_skip_connections
        self.depth, self.width = options.lstm.n_layers + 1, 2 * options.lstm.projection_dim
        self.words = CharacterEncoder(options.char_cnn, options.lstm.projection_dim)
        self.layers = nn.ModuleList(ProjectedLSTM(options.lstm) for _ in range(options.lstm.n_layers))
        self.register_buffer("boundaries", self._framed([[BEGIN_SENTENCE], [END_SENTENCE]]), persistent=False)
        self.requires_grad_(False)

    @classmethod
    def read(cls, path: Path | str, weights: Path | str | None = None) -> Self:
        """The published model of a folder, or of an options file and the weights that are named or lie beside it."""
        path = Path(path)
        if not path.exists():
            raise BadFile(f"{path}: no such file or folder; name a folder with the options.json and weights.hdf5 of an ELMo")
        elmo = cls(_read_options(_only(path, "options.json") if path.is_dir() else path))
        weights = Path(weights) if weights else _only(path if path.is_dir() else path.parent, "weights.hdf5")
        _read_weights(weights, elmo)
        return elmo

    @classmethod
    def load(cls, path: Path) -> Self:
        """The model of a file that `content` was written to."""
        try:
            with safe_open(path, "pt") as file:
                elmo = cls(_checked_options(path, file.metadata()["options"].encode()))
                elmo.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise BadModel(f"{path}: missing or damaged ({error}); copy or train the model again") from None
        return elmo

    def content(self) -> bytes:
        """Options and weights as a safetensors file."""
        state = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        return save(state, {"options": json.dumps(asdict(self.options))})

    def vectors(self, documents: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """(words, parts, projection) of each document, float16, for ScalarMix.

        Parts are the two directions of each layer, but of the first layer, where they are equal, only one.
        """
        order = sorted(range(len(documents)), key=lambda row: -len(documents[row]))
        found = [np.empty(0)] * len(documents)
        while order:
            size = max(1, min(DOCUMENTS, PLACES // max(1, len(documents[order[0]]))))
            some, order = order[:size], order[size:]
            for row, parts in zip(some, self._parts([documents[row] for row in some]), strict=True):
                found[row] = parts[: len(documents[row])]
        return found

    def spell(self, words: Sequence[str]) -> Tensor:
        """(words, characters) numbers of the letters of words, in original case."""
        return self._framed([word.encode("utf-8", "ignore") for word in words])

    def forward(self, characters: Tensor, lengths: Tensor) -> Tensor:
        """(layers, batch, length, width) from (batch, length, characters) spelt words; zero beyond the end of a document."""
        return self.run(self.words(characters), lengths)[0]

    @torch.no_grad()
    def run(self, vectors: Tensor, lengths: Tensor, states: Sequence[State] = ()) -> tuple[Tensor, list[State]]:
        """The same from (batch, length, projection) vectors of words, with a state per layer to start from and to go on with."""
        states = states or [layer.empty(len(lengths)) for layer in self.layers]  # type: ignore[operator]
        bounded = self._bounded(vectors, lengths)
        # A document turned round starts at its own end, whoever shares its batch: both directions are one loop over packed rows.
        both = torch.cat([bounded, _turned(bounded, lengths + 2)], dim=-1)
        packed = pack_padded_sequence(both, lengths + 2, batch_first=True, enforce_sorted=False)
        current = packed.data.view(-1, 2, vectors.shape[2]).transpose(0, 1)  # (2, tokens, projection)
        layers, ends = [_unpacked(packed, current, lengths, bounded.shape[1])], []
        for number, layer in enumerate(self.layers):
            hidden, memory = (part[:, packed.sorted_indices] for part in states[number])
            found = layer(current, packed.batch_sizes.tolist(), hidden, memory)
            current = found + current if number and self.skip else found
            layers.append(_unpacked(packed, current, lengths, bounded.shape[1]))
            ends.append((hidden[:, packed.unsorted_indices], memory[:, packed.unsorted_indices]))
        return torch.stack(layers), ends

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        """Name and place of everything that a weights file holds; the places have the shapes of that file."""
        yield from self.words.stored()
        for number, layer in enumerate(self.layers):
            yield from layer.stored(f"RNN/MultiRNNCell/Cell{number}/LSTMCell")  # type: ignore[operator]

    def _parts(self, documents: Sequence[Sequence[str]]) -> np.ndarray:
        """(batch, length, parts, projection) of one batch."""
        numbers: dict[str, int] = {}  # of distinct words: to spell one takes longer than to look it up
        rows = [torch.tensor([numbers.setdefault(word, len(numbers)) for word in words], dtype=torch.long) for words in documents]
        places, device = pad_sequence(rows, batch_first=True), self.boundaries.device
        with torch.autocast(device.type, enabled=False):  # the same vectors wherever they are asked for
            words = self.words(send(self.spell([*numbers]), device))[send(places, device)]
            layers, _ = self.run(words, torch.tensor([len(row) for row in rows]))
        halves = layers.half().movedim(0, 2).reshape(*places.shape, 2 * self.depth, self.width // 2)
        return halves[:, :, 1:].cpu().numpy()

    def _framed(self, words: Sequence[Sequence[int]]) -> Tensor:
        inside = [[BEGIN_WORD, *letters[: self.most - 2], END_WORD] for letters in words]
        rows = [row + [PADDING] * (self.most - len(row)) for row in inside]
        return torch.tensor(rows, dtype=torch.int16).view(-1, self.most) + 1

    def _bounded(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """(batch, length + 2, projection), documents with the marks of a sentence's begin and end."""
        bounded = functional.pad(vectors, (0, 0, 1, 1))
        begin, end = self.words(self.boundaries)
        bounded[:, 0] = begin
        bounded[torch.arange(len(lengths)), lengths + 1] = end
        return bounded


class CharacterEncoder(nn.Module):
    """Spelt words to vectors: convolutions over letters, the largest value of each, highway layers, a projection."""

    def __init__(self, options: CharacterOptions, width: int) -> None:
        super().__init__()
        letter, filters = options.embedding.dim, sum(number for _, number in options.filters)
        self.activation = ACTIVATIONS[options.activation]
        self.letters = nn.Embedding(options.n_characters, letter, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(letter, number, span) for span, number in options.filters)
        self.highways = nn.ModuleList(Highway(filters) for _ in range(options.n_highway))
        self.project = nn.Linear(filters, width)

    @torch.no_grad()
    def forward(self, characters: Tensor) -> Tensor:
        """(…, width) vectors of (…, characters) numbers, without context."""
        distinct, places = torch.unique(characters.flatten(0, -2), dim=0, return_inverse=True)  # most words come more than once
        return torch.cat([self._vectors(some) for some in torch.split(distinct, WORDS)])[places.view(characters.shape[:-1])]

    def _vectors(self, characters: Tensor) -> Tensor:
        letters = self.letters(characters.int()).transpose(1, 2)  # (words, letter width, characters)
        # The padding of a word takes part, as it did in training.
        found = torch.cat([self.activation(convolve(letters).amax(-1)) for convolve in self.convolutions], dim=1)
        for highway in self.highways:
            found = highway(found)
        return self.project(found)

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        """Name and place of everything that a weights file holds."""
        yield "char_embed", self.letters.weight[1:]
        for number, convolve in enumerate(self.convolutions):
            yield f"CNN/W_cnn_{number}", convolve.weight.permute(2, 1, 0)[None]  # type: ignore[operator]
            yield f"CNN/b_cnn_{number}", convolve.bias  # type: ignore[misc]
        for number, highway in enumerate(self.highways):
            for name in ("carry", "transform"):
                part = getattr(highway, name)
                yield f"CNN_high_{number}/W_{name}", part.weight.T
                yield f"CNN_high_{number}/b_{name}", part.bias
        yield "CNN_proj/W_proj", self.project.weight.T
        yield "CNN_proj/b_proj", self.project.bias


class Highway(nn.Module):
    """A dense layer, and a gate that says how much of it takes the place of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry, self.transform = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """(words, width)."""
        return torch.lerp(inputs, self.transform(inputs).relu(), self.carry(inputs).sigmoid())


class ProjectedLSTM(nn.Module):
    """One LSTM layer with projection in each direction, side by side; cuDNN's cannot clip."""

    def __init__(self, options: RecurrentOptions) -> None:
        super().__init__()
        units, width = options.dim, options.projection_dim
        self.memory_limit, self.hidden_limit = options.cell_clip or math.inf, options.proj_clip or math.inf
        self.weight = nn.Parameter(torch.empty(2, 2 * width, 4 * units))  # of the input, then of the hidden state
        self.bias = nn.Parameter(torch.empty(2, 4 * units))
        self.projection = nn.Parameter(torch.empty(2, units, width))

    def forward(self, inputs: Tensor, sizes: list[int], hidden: Tensor, memory: Tensor) -> Tensor:
        """(2, tokens, width) from the same, packed: step by step a row of each document that is not over; updates the state."""
        of_input, of_hidden = self.weight.chunk(2, dim=1)
        blocks = [sizes[step : step + STEPS] for step in range(0, len(sizes), STEPS)]
        outputs = []
        for block, rows in zip(blocks, torch.split(inputs, [sum(block) for block in blocks], dim=1), strict=True):
            from_inputs = torch.baddbmm(self.bias[:, None], rows, of_input)  # (2, rows, 4 × units)
            for gates in torch.split(from_inputs, block, dim=1):
                running = slice(gates.shape[1])  # the longest documents come first
                add, fresh, keep, show = torch.baddbmm(gates, hidden[:, running], of_hidden).chunk(4, dim=-1)
                # TensorFlow's cell adds 1 to the forget gate, which is not in the stored bias.
                kept = (keep + 1).sigmoid() * memory[:, running] + add.sigmoid() * fresh.tanh()
                memory[:, running] = kept.clamp(-self.memory_limit, self.memory_limit)
                shown = torch.bmm(show.sigmoid() * memory[:, running].tanh(), self.projection)
                outputs.append(shown.clamp(-self.hidden_limit, self.hidden_limit))
                hidden[:, running] = outputs[-1]
        return torch.cat(outputs, dim=1)

    def empty(self, batch: int) -> State:
        """The state of documents that have not begun."""
        _, units, width = self.projection.shape
        return self.bias.new_zeros(2, batch, width), self.bias.new_zeros(2, batch, units)

    def stored(self, place: str) -> Iterator[tuple[str, Tensor]]:
        """Name and place of everything that a weights file holds of this layer."""
        for direction in (0, 1):
            yield f"RNN_{direction}/{place}/W_0", self.weight[direction]
            yield f"RNN_{direction}/{place}/B", self.bias[direction]
            yield f"RNN_{direction}/{place}/W_P_0", self.projection[direction]


class ScalarMix(nn.Module):
    """Layers to one: their weighted mean, times a scale; all that is trained of ELMo."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.weights = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, parts: Tensor) -> Tensor:
        """(…, width) from (…, parts, projection), float32 whatever the parts are."""
        first, *others = torch.split(self.scale * self.weights.softmax(0), 1)
        mixed = first * parts[..., :1, :]  # for both directions
        for weight, layer in zip(others, torch.split(parts[..., 1:, :], 2, dim=-2), strict=True):
            mixed = mixed + weight * layer
        return mixed.flatten(-2)


def _turned(padded: Tensor, sizes: Tensor) -> Tensor:
    """A padded batch, each document from its end to its begin; done twice, it is as before."""
    length = padded.shape[1]
    places = (sizes[:, None] - 1 - torch.arange(length)) % length  # (batch, length); padding stays behind the document
    return padded.take_along_dim(send(places[..., None], padded.device), dim=1)


def _unpacked(packed: PackedSequence, rows: Tensor, lengths: Tensor, length: int) -> Tensor:
    """(batch, length - 2, 2 × projection), the marks of begin and end taken off, and zero beyond the end of a document."""
    both = packed._replace(data=rows.transpose(0, 1).flatten(1))
    forward, backward = pad_packed_sequence(both, batch_first=True, total_length=length)[0].chunk(2, dim=-1)
    found = torch.cat([forward, _turned(backward, lengths + 2)], dim=-1)[:, 1:-1]
    return found * mask_of(lengths, found)[..., None]


def _only(folder: Path, ending: str) -> Path:
    found = sorted(folder.glob(f"*{ending}"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise BadFile(f"{folder}: one file *{ending} is needed, but there are: {names}; name options and weights themselves")
    return found[0]


def _read_options(path: Path) -> Options:
    with open_bytes(path) as file:
        return _checked_options(path, file.read())


def _checked_options(path: Path, content: bytes) -> Options:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Options).validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "all of it"
        raise BadFile(f"{path}: {place}: {first['msg'].lower()}; take the options file that came with the weights") from None


def _read_weights(path: Path, elmo: Elmo) -> None:
    import h5py  # type: ignore[import-untyped]

    try:
        with h5py.File(path) as file:
            for name, place in elmo.stored():
                place.copy_(torch.from_numpy(_dataset(path, file.get(name), name, tuple(place.shape))))
    except FileNotFoundError:
        raise BadFile(f"{path}: no such file; name the weights (.hdf5) that belong to the options") from None
    except OSError as error:
        raise BadFile(f"{path}: not an HDF5 file, or a broken one: {error}; copy or download it again") from None


def _dataset(path: Path, found: Any, name: str, shape: tuple[int, ...]) -> Any:
    stored = getattr(found, "shape", "missing")  # a group has none
    if stored != shape:
        raise BadFile(f"{path}: {name} is {stored}, but the options make it {shape}; take the options file that came with it")
    return found[...]
