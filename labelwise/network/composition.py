"""What a network is made of: settings, and the parts they choose (house plan, section 4; SPEC 1.7 to 1.12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from torch import Tensor, nn

from labelwise.errors import BadSettings
from labelwise.features.node2vec import NodeSettings
from labelwise.network.decoders import Decoder, DotDecoder, SharedDecoder, TanhDecoder
from labelwise.network.elmo import ScalarMix
from labelwise.network.label_encoders import DescribedLabels, LabelEncoder, LearnedLabels, Merge, Refinement
from labelwise.network.network import LabelNetwork
from labelwise.network.read_labels import ReadLabels
from labelwise.network.reading import Attention, AverageWithFirst, FirstToken, FirstTokens, LabelAttention, ProjectedAttention
from labelwise.network.token_encoders import DROPOUTS, ConvolutionEncoder, RecurrentEncoder, TokenEncoder, WordInputs
from labelwise.network.training import TrainingSettings
from labelwise.network.transformer import KeptStates, TransformerEncoder, segment_length
from labelwise.settings import Range

LEARNED = "corpus"  # in the place of a vectors file
LONGEST = 1 << 30  # a segment without end


@dataclass(frozen=True)
class WordSettings:
    """How texts become word vectors."""

    vectors: str = LEARNED
    """File of pretrained vectors (GloVe or word2vec text, word2vec binary, npz); `corpus` learns them from the training texts."""
    width: Annotated[int, Range(0, 10_000)] = 0
    """Components of a vector; 0 takes what the file has, and 200 for learned ones."""
    unknown: Literal["unknown_word", "zeros", "mean", "constant"] = "unknown_word"
    """Vector of a word that a file has not: that of the word "unknown" (the mean without it), zeros, the mean, or a constant."""
    complete: bool = False
    """Words of the training texts that a file has not get a vector made from the words around them."""
    train: bool = False
    """Let training change the vectors of words; the paper leaves them as they are. Label vectors are made from the first ones."""
    max_length: Annotated[int, Range(1, 1_000_000, log=True)] = 2000
    """Tokens of a document that are read."""
    newlines: bool = True
    """Runs of line breaks are tokens, as in the paper."""
    shuffle: bool = False
    """Put the words of every document into random order, to see what word order is worth."""


@dataclass(frozen=True)
class EncoderSettings:
    """How words become states."""

    kind: Literal["recurrent", "convolution", "transformer"] = "recurrent"
    """Recurrent layers in both directions, convolutions over neighbouring words, or a transformer over sub-words."""
    cell: Literal["gru", "lstm"] = "gru"
    """Kind of recurrent cell."""
    start: Literal["zeros", "learned"] = "zeros"
    """What recurrent layers start from at both ends of a document."""
    fused: bool = True
    """Run GRU layers of up to 128 units in one kernel of ours on a GPU, not in cuDNN's one for each word."""
    units: Annotated[int, Range(0, 10_000, tried=(100, 400))] = 0
    """Units per direction, or filters; 0 is the paper's: 300 for learned labels, 100 for others, or what fits their vectors."""
    layers: Annotated[int, Range(1, 12, tried=(1, 2))] = 1
    """Layers."""
    dropout: Annotated[float, Range(0.0, 0.99, tried=(0.0, 0.5))] = 0.1
    """Share of channels dropped in training, of words, states and label vectors."""
    state_dropout: Annotated[float, Range(-1.0, 0.99)] = -1.0
    """The share for states, if it is another; below 0 it is the same."""
    dropped: Literal["channels", "values"] = "channels"
    """Drop channels of words and states as a whole, or value by value; those of transformers always as a whole."""
    word_dropout: Annotated[float, Range(0.0, 0.99, tried=(0.0, 0.05))] = 0.0
    """Share of words dropped in training."""
    window: Annotated[int, Range(1, 99)] = 3
    """Words that a convolution sees at once."""
    elmo: str = ""
    """Folder of an ELMo, as published: its vectors stand beside those of words. Those of training texts are kept in the cache."""
    checkpoint: str = ""
    """Folder of a transformer, as the transformers library writes it, or its name on the model hub."""
    segment: Annotated[int, Range(0, 1_000_000)] = 512
    """Sub-words that a transformer sees at once, the two that begin and end them included; 0 for as many as it can."""
    segments: Annotated[int, Range(1, 10_000)] = 1
    """Segments of a document that are read, one after the other."""
    segmentation: Literal["consecutive", "sections"] = "consecutive"
    """Segments are cut one after the other, each full but the last; or each is a section of the document, its end cut off."""
    frozen: Annotated[int, Range(0, 1000)] = 0
    """Lowest parts of a transformer that are not trained: 1 for its embeddings, 2 for the first layer too, and so on."""
    kept: bool = False
    """Do not train a transformer, but compute its states once and keep them in the cache, 2 bytes for each component."""
    recompute: bool = False
    """Compute a transformer's layers again in the backward pass instead of keeping what they made: less memory, more time."""

    @property
    def dropout_of_states(self) -> float:
        """The share of states that is dropped."""
        return self.dropout if self.state_dropout < 0 else self.state_dropout


@dataclass(frozen=True)
class LabelSettings:
    """How labels become vectors."""

    encoder: Literal["learned", "centroid", "centroid_proj", "node2vec", "concat", "read"] = "learned"
    """Learned per label; the mean of the name's word vectors, also projected; node vectors of the hierarchy; or both of these;
    or read as a text by the documents' encoder, and learned as well."""
    refine: Literal["none", "dense", "graph"] = "none"
    """Two more layers on each label alone (dense) or on its parents and children too (graph)."""
    variant: Literal["paper", "flat", "concat", "code2019"] = "paper"
    """Other readings of DN (flat), DNC (code2019) and GNC (concat, code2019), see SPEC 1.10 to 1.12."""
    start: Literal["zeros", "prior"] = "zeros"
    """First bias that a label learns: 0 as in the paper, or by its share of the documents, which saves many steps."""
    dropout: bool = True
    """Drop components of label vectors in training."""
    length: Annotated[float, Range(0.0, 1000.0)] = 0.0
    """Bring mean and node vector to this length each, so that neither drowns the other; 0 leaves them as they are."""
    max_words: Annotated[int, Range(1, 1000)] = 15
    """Words of a label's name that are read."""
    text: tuple[Literal["name", "synonyms", "parents", "description"], ...] = ("name", "synonyms", "parents")
    """What of a label is read where it is read as a text."""
    text_length: Annotated[int, Range(3, 512)] = 32
    """Tokens of such a text, those that begin and end it included."""
    sharpness: Annotated[float, Range(0.0, 100.0)] = 0.0
    """How sharply a label that is read looks at the words it is like, at first; 0 finds what fits the training documents best."""
    text_only: Annotated[float, Range(0.0, 1.0)] = 0.0
    """Share that scores by a label's text alone have in the loss, so that new labels are scored well too."""
    nodes: NodeSettings = field(default_factory=NodeSettings)


@dataclass(frozen=True)
class NetworkSettings:
    """What a network is made of, and how it is trained."""

    seed: Annotated[int, Range(0, 2**32 - 1)] = 1
    """Same seed, same model."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Processor cores to use, 0 for torch's choice; the same bits need the same number."""
    device: str = "auto"
    """auto (CUDA, then MPS, then CPU), cpu, cuda or mps."""
    deterministic: bool = False
    """Only ways to compute that give the same bits on every run on CUDA too, at some cost; on a CPU they always do."""
    budget: Annotated[float, Range(0.0, 1e6)] = 0.0
    """Minutes for reading and training, 0 for no limit: it ends before the epoch that would pass them, but does one at least."""
    attention: Literal["auto", "label", "projected", "first", "segments"] = "auto"
    """How labels read states: all of them, all of them projected, the first, or the largest of segments' first; auto by paper."""
    average_first: bool = False
    """Average what a label reads of all states with the first one, as BERT-LWAN does in the authors' code of 2019."""
    decoder: Literal["auto", "dot", "tanh", "mlp"] = "auto"
    """How a label judges what it read: by a dot product, one after tanh, or a network all labels share; auto as in the paper."""
    mlp: tuple[int, ...] = (256,)
    """Hidden sizes of the shared network."""
    words: WordSettings = field(default_factory=WordSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    labels: LabelSettings = field(default_factory=LabelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    @property
    def settled(self) -> tuple[str, ...]:
        """Settings that a search leaves alone, as the others make them idle or leave them no choice."""
        if self.encoder.kind == "transformer":
            return ("encoder.units", "encoder.layers", "encoder.word_dropout")
        return ("encoder.units",) if Parts(self).multiplied else ()


class Parts:
    """The parts that settings choose, variants resolved (SPEC 1.7 to 1.12)."""

    VARIANTS: ClassVar[dict[tuple[str, str, str], tuple[tuple[str, ...], Merge, Refinement]]] = {
        # (encoder, refine, variant) → sources, how they are merged, refinement
        ("node2vec", "dense", "flat"): (("nodes",), "none", "none"),
        ("concat", "dense", "code2019"): (("centroid", "nodes"), "deep", "none"),
        ("node2vec", "graph", "concat"): (("centroid", "nodes"), "none", "graph"),
        ("node2vec", "graph", "code2019"): (("centroid", "nodes"), "dense", "graph"),
    }
    SOURCES: ClassVar[dict[str, tuple[str, ...]]] = {
        "learned": (),
        "centroid": ("centroid",),
        "centroid_proj": ("centroid",),
        "node2vec": ("nodes",),
        "concat": ("centroid", "nodes"),
        "read": (),
    }

    merge: Merge
    refine: Refinement

    def __init__(self, settings: NetworkSettings) -> None:
        given = settings.labels
        chosen = (given.encoder, given.refine, given.variant)
        if given.variant == "paper":
            self.sources, self.merge, self.refine = self.SOURCES[given.encoder], "none", given.refine
        elif chosen in self.VARIANTS:
            self.sources, self.merge, self.refine = self.VARIANTS[chosen]
        else:
            known = "; ".join(f"{variant} with encoder={encoder}, refine={refine}" for encoder, refine, variant in self.VARIANTS)
            raise BadSettings(
                f"labels.variant={given.variant} means nothing with encoder={given.encoder} and refine={given.refine}; there is "
                f"{known}"
            )
        if settings.encoder.kind != "transformer" and settings.encoder.checkpoint != type(settings)().encoder.checkpoint:
            raise BadSettings(
                f"encoder.checkpoint={settings.encoder.checkpoint} is for transformers, not for encoder.kind="
                f"{settings.encoder.kind}; take a method with one, such as bert-base-lwan, or drop it"
            )
        if settings.encoder.kept and settings.encoder.kind != "transformer":
            raise BadSettings(f"encoder.kept=true is for transformers, not for encoder.kind={settings.encoder.kind}; drop it")
        if settings.encoder.elmo and settings.encoder.kind == "transformer":
            raise BadSettings("encoder.elmo stands beside word vectors, which encoder.kind=transformer has not; drop one of them")
        self.learned, self.projected = given.encoder == "learned", given.encoder == "centroid_proj"
        self.read = given.encoder == "read"
        if (self.learned or self.read) and self.refine != "none":
            raise BadSettings(f"labels.refine={self.refine} needs described labels; choose labels.encoder=centroid, say")
        self.decoder = settings.decoder if settings.decoder != "auto" else "dot" if self.refine == "none" else "tanh"
        if self.learned and self.decoder == "mlp" and given.start == "prior":
            raise BadSettings("labels.start=prior is for the biases of labels, which decoder=mlp has not; drop one of them")
        described = not (self.learned or self.read)
        self.multiplied = described and self.decoder == "dot" and self.merge == "none" and not self.projected  # with states
        self.attention = settings.attention
        if self.attention == "auto":
            self.attention = "label" if self.learned or self.read else "projected"
        if self.attention == "first" and settings.encoder.segments > 1:
            raise BadSettings(
                f"attention=first reads one of encoder.segments={settings.encoder.segments} only; attention=segments reads the "
                "largest of all their first states"
            )
        if settings.average_first and self.attention not in ("label", "projected"):
            raise BadSettings(
                f"average_first=true means nothing with attention={self.attention}, where labels read first states only; choose "
                "attention=label, or drop it"
            )


def build(
    settings: NetworkSettings,
    vectors: Tensor,
    labels: int,
    node_width: int = 0,
    transformer: tuple[nn.Module, int] | None = None,
    mix: ScalarMix | None = None,
) -> LabelNetwork:
    """The network that the settings describe, with its first weights; a transformer comes with the number of its padding."""
    parts, given, segment = Parts(settings), settings.encoder, LONGEST
    sections = given.segmentation == "sections"
    sources = [{"centroid": vectors.shape[1], "nodes": node_width}[source] for source in parts.sources]
    tokens: TokenEncoder
    if transformer is None:
        tokens = _over_words(settings, parts, vectors, sum(sources), mix)
    else:
        tokens = over_segments(settings, *transformer)
        segment = tokens.segment
        if given.kept:
            tokens = KeptStates(tokens)
    if parts.learned:
        reads, judges = parts.attention not in ("first", "segments"), parts.decoder != "mlp"  # each label in its own way
        encoder: LabelEncoder = LearnedLabels(labels, tokens.width, queries=reads, outputs=judges)
    elif parts.read:
        encoder = ReadLabels(
            labels,
            tokens.width,
            tokens.said,
            tokens.say,
            text_only=settings.labels.text_only,
            fixed=given.kept,
        )
    else:
        encoder = DescribedLabels(
            sources,
            refine=parts.refine,
            merge=parts.merge,
            merged=tokens.width,
            project=tokens.width if parts.projected else 0,
            dropout=given.dropout if settings.labels.dropout else 0.0,
        )
    attentions: dict[str, Callable[[], Attention]] = {
        "label": LabelAttention,
        "projected": lambda: ProjectedAttention(tokens.width, encoder.width),
        "first": FirstToken,
        "segments": lambda: FirstTokens(1 if sections else segment),
    }
    decoders: dict[str, Callable[[], Decoder]] = {
        "dot": DotDecoder,
        "tanh": lambda: TanhDecoder(tokens.width, encoder.output_width),
        "mlp": lambda: SharedDecoder(tokens.width, settings.mlp),
    }
    _require_fit(parts, tokens.width, encoder)
    attention = attentions[parts.attention]()
    if settings.average_first:
        attention = AverageWithFirst(attention)
    return LabelNetwork(tokens, encoder, attention, decoders[parts.decoder]())


def over_segments(settings: NetworkSettings, model: nn.Module, padding: int) -> TransformerEncoder:
    """What encodes segments of sub-words, whether its states are kept or it is trained."""
    given = settings.encoder
    sections = given.segmentation == "sections"
    return TransformerEncoder(
        model,
        segment_length(model, given.segment),
        padding,
        given.dropout_of_states,
        frozen=given.frozen,
        recompute=given.recompute,
        sections=sections,
        firsts=sections and Parts(settings).attention == "segments",
    )


def _over_words(
    settings: NetworkSettings, parts: Parts, vectors: Tensor, label_width: int, mix: ScalarMix | None
) -> TokenEncoder:
    """What encodes words by their vectors."""
    given, recurrent = settings.encoder, settings.encoder.kind == "recurrent"
    units = given.units or _units(parts, recurrent, label_width) // (2 if recurrent else 1)
    dropout, drop = given.dropout_of_states, DROPOUTS[given.dropped]
    inputs = WordInputs(vectors, given.dropout, given.word_dropout, train=settings.words.train, mix=mix, drop=drop)
    if recurrent:
        return RecurrentEncoder(
            inputs,
            units,
            layers=given.layers,
            dropout=dropout,
            cell=given.cell,
            start=given.start,
            fused=given.fused,
        )
    return ConvolutionEncoder(inputs, units, layers=given.layers, dropout=dropout, window=given.window)


def _units(parts: Parts, recurrent: bool, label_width: int) -> int:
    """Components of a state where the settings leave them open: the paper's, or those of label vectors it is multiplied with."""
    if parts.learned or parts.read:
        return 600 if recurrent else 200
    return label_width if parts.multiplied else 200


def _require_fit(parts: Parts, width: int, encoder: LabelEncoder) -> None:
    """Say so when states and label vectors cannot be multiplied (SPEC T-20)."""
    way = "set encoder.units so that they agree (per direction: half), or labels.encoder=centroid_proj"
    if parts.attention == "label" and encoder.width != width:
        raise BadSettings(f"attention=label compares states of {width} with label vectors of {encoder.width} components; {way}")
    if parts.decoder == "dot" and encoder.output_width != width:
        raise BadSettings(
            f"decoder=dot multiplies states of {width} with label vectors of {encoder.output_width} components; {way}"
        )
