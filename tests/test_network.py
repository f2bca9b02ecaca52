"""Networks against SPEC 9.3's toy values and parameter counts, and what must hold for all of them."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from labelwise.errors import BadSettings
from labelwise.network import decoders
from labelwise.network.composition import EncoderSettings, NetworkSettings, build
from labelwise.network.decoders import DotDecoder, SharedDecoder, TanhDecoder
from labelwise.network.label_encoders import DescribedLabels, LabelVectors, LearnedLabels, label_facts
from labelwise.network.network import LabelNetwork
from labelwise.network.reading import FirstToken, LabelAttention, ProjectedAttention
from labelwise.network.token_encoders import DROPOUTS, ConvolutionEncoder, RecurrentEncoder, Tokens, WordInputs
from labelwise.registry import find, methods
from labelwise.settings import make

STATES = torch.tensor([[[1.0, 0], [0, 1], [0.5, 0.5]]])
LENGTHS = torch.tensor([3])


def filled(layer, weight, bias=None):
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))


def close(values, expected):
    assert torch.as_tensor(values).detach().numpy() == pytest.approx(np.array(expected), abs=1e-6)


@pytest.fixture
def toy_labels():
    return LabelVectors(torch.tensor([[1.0, -1], [0, 2]]), torch.tensor([[2.0, 1], [-1, 1]]), torch.tensor([0.1, -0.2]))


@pytest.mark.parametrize("padding", [0, 2])
def test_the_flat_network_gives_the_toy_values_with_and_without_padding(toy_labels, padding):
    states = torch.cat([STATES, torch.zeros(1, padding, 2)], dim=1)
    attention = LabelAttention()
    close(attention.weights(states, toy_labels.query[:1], LENGTHS), [0.665241, 0.090031, 0.244728])
    close(attention.weights(states, toy_labels.query[1:], LENGTHS), [0.090031, 0.665241, 0.244728])
    close(attention.summaries(states, states, toy_labels.query, LENGTHS)[0], [[0.787605, 0.212395], [0.212395, 0.787605]])
    close(torch.sigmoid(DotDecoder()(attention, states, toy_labels, LENGTHS)[0]), [0.868482, 0.592717])


def test_the_centroid_network_gives_the_toy_values():
    attention = ProjectedAttention(2, 2)
    filled(attention.project, [[1.0, 0], [0.5, 1]], [0.1, 0])
    query = torch.tensor([[0.5, 0.5], [1, 0]])
    close(attention.summaries(attention.keys(STATES), STATES, query, LENGTHS)[0], [[0.532773, 0.467227], [0.611241, 0.388759]])
    close(torch.sigmoid(DotDecoder()(attention, STATES, LabelVectors(query, query), LENGTHS)[0]), [0.622459, 0.648224])


VECTORS = np.array([[0.1, 0.2], [0.3, -0.1], [0, 0.4], [-0.2, 0.5]], dtype=np.float32)
PARENTS = csr_array((np.ones(4), ([1, 2, 3, 3], [0, 0, 1, 2])), shape=(4, 4))


def refined(refine, parents):
    encoder = DescribedLabels([2], refine=refine, dropout=0.0)
    for layer in encoder.layers:
        filled(layer.own, np.eye(2), [0.0, 0])
        if refine == "graph":
            filled(layer.from_parents, 0.5 * np.eye(2))
            filled(layer.from_children, 0.25 * np.eye(2))
    encoder.describe(label_facts([VECTORS], parents))
    return encoder().output


def test_graph_layers_give_the_toy_values_with_the_right_degrees():
    expected = [[0.171347, 0.307699], [0.317212, 0.354582], [0.037215, 0.664552], [-0.051479, 0.597185]]
    found = refined("graph", PARENTS)
    close(found[:, 2:], expected)
    close(found[:, :2], VECTORS)


def test_graph_layers_without_a_graph_are_the_dense_layers():
    close(refined("dense", PARENTS)[:, 2:], np.tanh(np.tanh(VECTORS)))
    assert torch.equal(refined("graph", csr_array((4, 4))), refined("dense", PARENTS))
    assert not torch.allclose(refined("graph", PARENTS), refined("dense", PARENTS))


@pytest.mark.parametrize(
    ("method", "settings", "labels", "parameters"),
    [
        ("bigru-lwan", {}, 4271, 6_033_071),
        ("bigru-lwan", {"encoder": {"layers": 2}}, 8771, 13_061_171),
        ("bigru-lwan", {"encoder": {"layers": 2}}, 14268, 19_663_068),
        ("cnn-lwan", {}, 4271, 1_832_871),
        ("c-bigru-lwan", {}, 4271, 221_400),
        ("c-bigru-lwan", {"encoder": {"layers": 2}}, 4271, 402_600),
        ("c-bigru-lwan", {"labels": {"encoder": "centroid_proj"}}, 4271, 261_600),
        ("gc-bigru-lwan", {}, 4271, 542_200),
        ("dc-bigru-lwan", {}, 4271, 382_200),
        ("dn-bigru-lwan", {}, 4271, 382_200),
        ("dn-bigru-lwan", {"labels": {"variant": "flat"}}, 4271, 221_400),
        ("dnc-bigru-lwan", {}, 4271, 743_200),
        ("gnc-bigru-lwan", {}, 4271, 542_200),
        ("gnc-bigru-lwan", {"labels": {"variant": "concat"}}, 4271, 1_383_200),
        ("gnc-bigru-lwan", {"labels": {"variant": "code2019"}}, 4271, 622_400),
        ("c-cnn-lwan", {}, 4271, 160_400),
        ("gc-cnn-lwan", {}, 4271, 481_200),
        ("attention-xml", {}, 4271, 2 * 4 * 256 * (200 + 256 + 2) + 4 * 256 + 4271 * 512 + 513 * 256 + 257),
        ("attention-xml", {"encoder": {"units": 3}, "mlp": (4, 2)}, 7, 2 * 4 * 3 * (200 + 3 + 2) + 12 + 42 + 28 + 10 + 3),
    ],
)
def test_parameters_are_as_many_as_the_equations_say(method, settings, labels, parameters):
    kind = find(method, methods(), "method").load()
    network = build(make(kind.Settings, settings), torch.zeros(3, 200), labels, 200)
    assert network.trainable() == parameters
    if network.label_encoder.__class__ is DescribedLabels:
        assert all(labels not in parameter.shape for parameter in network.parameters())


def test_the_2019_reading_of_dnc_is_a_dense_layer_over_two():
    kind = find("dnc-bigru-lwan", methods(), "method").load()
    network = build(make(kind.Settings, {"labels": {"variant": "code2019"}}), torch.zeros(3, 200), 10, 200)
    assert network.trainable() == 221_400 + 2 * (200 * 200 + 200) + 400 * 200 + 200
    assert isinstance(network.decoder, DotDecoder)


def networks():
    vectors = torch.cat([torch.zeros(1, 8), torch.randn(20, 8, generator=torch.Generator().manual_seed(0))])
    for kind in ("recurrent", "convolution"):
        for labels in ("learned", "centroid", "centroid_proj"):
            for refine in ("none", "dense", "graph") if labels != "learned" else ("none",):
                for decoder in ("auto", "mlp"):
                    settings = make(
                        NetworkSettings,
                        {
                            "decoder": decoder,
                            "mlp": (5,),
                            "encoder": {"kind": kind, "units": 4 if kind == "recurrent" else 8, "layers": 2},
                            "labels": {"encoder": labels, "refine": refine},
                        },
                    )
                    yield pytest.param(settings, vectors, id=f"{kind}-{labels}-{refine}-{decoder}")
    for cell in ("gru", "lstm"):
        encoder = EncoderSettings(cell=cell, start="learned", units=4, layers=2)
        yield pytest.param(NetworkSettings(encoder=encoder, decoder="mlp", mlp=(5, 3)), vectors, id=f"{cell}-learned-start")


NETWORKS = list(networks())


def made(settings, vectors):
    torch.manual_seed(3)
    network = build(settings, vectors, 4)
    for start in getattr(network.token_encoder, "starts", None) or ():
        torch.nn.init.normal_(start)
    if isinstance(network.label_encoder, DescribedLabels):
        random = np.random.default_rng(0)
        network.label_encoder.describe(label_facts([random.normal(size=(4, 8))], PARENTS))
    return network


BATCH = Tokens(torch.tensor([[3, 4, 5, 6, 7], [8, 9, 0, 0, 0], [0, 0, 0, 0, 0]]), torch.tensor([5, 2, 0]))


@pytest.mark.parametrize(("settings", "vectors"), NETWORKS)
def test_padding_changes_nothing(settings, vectors):
    network = made(settings, vectors).eval()
    whole = network(BATCH)
    longer = network(Tokens(torch.cat([BATCH.numbers, torch.full((3, 7), 11)], dim=1), BATCH.lengths))
    alone = network(Tokens(torch.tensor([[8, 9]]), torch.tensor([2])))
    assert torch.allclose(longer, whole, atol=1e-6)
    assert torch.allclose(alone[0], whole[1], atol=1e-6)
    assert torch.isfinite(whole).all()


@pytest.mark.parametrize(("settings", "vectors"), NETWORKS)
def test_every_parameter_is_trained_and_the_vectors_are_not(settings, vectors):
    network = made(settings, vectors)
    before = network.token_encoder.inputs.vectors.clone()
    network.loss(BATCH, torch.eye(4)[:3]).backward()
    unused = ("label_encoder.output", "label_encoder.layers") if isinstance(network.decoder, SharedDecoder) else ()
    for name, parameter in network.named_parameters():
        if not name.startswith(unused):
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
            assert parameter.grad.abs().sum() > 0, name
    assert not network.token_encoder.inputs.vectors.requires_grad
    assert torch.equal(network.token_encoder.inputs.vectors, before)


@pytest.mark.parametrize(("settings", "vectors"), NETWORKS)
def test_the_loss_is_the_mean_cross_entropy_of_the_logits(settings, vectors):
    network = made(settings, vectors).eval()
    targets = torch.eye(4)[:3]
    logits = network(BATCH)
    mean = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
    assert network.loss(BATCH, targets).item() == pytest.approx(mean.item(), abs=1e-6)
    some = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, ::2], targets[:, ::2])
    assert network.loss(BATCH, targets[:, ::2], torch.tensor([0, 2])).item() == pytest.approx(some.item(), abs=1e-6)


@pytest.mark.parametrize(("settings", "vectors"), NETWORKS)
def test_candidates_are_columns_of_the_whole(settings, vectors):
    network = made(settings, vectors).eval()
    assert torch.allclose(network(BATCH, candidates=torch.tensor([2, 0])), network(BATCH)[:, [2, 0]], atol=1e-6)


@pytest.mark.parametrize(("settings", "vectors"), NETWORKS)
def test_label_chunks_change_neither_scores_nor_gradients(settings, vectors, monkeypatch):
    def gradients():
        network = made(settings, vectors).eval()
        network.loss(BATCH, torch.eye(4)[:3]).backward()
        return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]

    whole = gradients()
    monkeypatch.setitem(decoders.CHUNK, "cpu", 1)
    for one, other in zip(whole, gradients(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_what_tokens_add_sums_to_the_logit_of_a_dot_decoder():
    settings, vectors = NETWORKS[0].values
    network = made(settings, vectors).eval()
    with torch.no_grad():
        torch.nn.init.normal_(network.label_encoder.bias)
        labels = network.label_encoder()
    tokens = Tokens(torch.tensor([[3, 4, 5]]), torch.tensor([3]))
    found = network.contributions(tokens, 1, labels)
    assert found.logit == pytest.approx(network(tokens)[0, 1].item(), abs=1e-6)
    assert sum(found.parts) + labels.bias[1].item() == pytest.approx(found.logit, abs=1e-6)


def test_the_first_token_is_all_that_first_reads():
    labels = LabelVectors(torch.zeros(2, 2), torch.tensor([[2.0, 1], [-1, 1]]))
    close(DotDecoder()(FirstToken(), STATES, labels, LENGTHS)[0], [2.0, -1])
    close(FirstToken().summaries(STATES, STATES, labels.query, LENGTHS)[0], [[1, 0], [1, 0]])


def test_dropped_channels_and_words_are_dropped_whole_and_the_rest_is_scaled():
    torch.manual_seed(0)
    inputs = WordInputs(torch.ones(2, 400), 0.5, 0.25)
    found = inputs(Tokens(torch.ones(1, 300, dtype=torch.long), torch.tensor([300])))[0]
    channels, words = (found.sum(0) > 0), (found.sum(1) > 0)
    assert torch.equal(found > 0, words[:, None] & channels)
    assert found.unique().tolist() == [0, pytest.approx(1 / 0.5 / 0.75)]
    assert channels.float().mean().item() == pytest.approx(0.5, abs=0.1)
    assert words.float().mean().item() == pytest.approx(0.75, abs=0.1)


def test_values_are_dropped_one_by_one_where_asked():
    torch.manual_seed(0)
    inputs = WordInputs(torch.ones(2, 400), 0.2, 0, drop=DROPOUTS["values"])
    found = inputs(Tokens(torch.ones(1, 300, dtype=torch.long), torch.tensor([300])))[0]
    assert found.unique().tolist() == [0, pytest.approx(1 / 0.8)]
    kept = (found > 0).float()
    assert kept.mean().item() == pytest.approx(0.8, abs=0.01)
    assert kept.mean(0).sub(0.8).abs().max() < 0.15 > kept.mean(1).sub(0.8).abs().max()
    assert torch.equal(inputs.eval()(Tokens(torch.ones(1, 1, dtype=torch.long), torch.tensor([1])))[0], torch.ones(1, 400))


@pytest.mark.parametrize("kind", ["recurrent", "convolution"])
@pytest.mark.parametrize(("given", "dropped"), [(-1.0, 0.2), (0.0, 0.0), (0.6, 0.6)])
def test_states_are_dropped_like_words_unless_they_have_a_share_of_their_own(kind, given, dropped):
    torch.manual_seed(0)
    encoder = EncoderSettings(kind=kind, units=100, dropout=0.2, state_dropout=given, dropped="values")
    tokens = build(NetworkSettings(encoder=encoder), torch.randn(5, 8), 3).token_encoder
    states = tokens(Tokens(torch.randint(1, 5, (20, 30)), torch.full((20,), 30)))
    assert tokens.inputs.dropout == 0.2
    assert (states == 0).float().mean().item() == pytest.approx(dropped, abs=0.02)


def test_both_directions_of_a_learned_start_begin_at_the_ends_of_the_document_itself():
    torch.manual_seed(0)
    vectors = torch.randn(12, 6)
    encoder = RecurrentEncoder(WordInputs(vectors, 0, 0), 3, dropout=0.0, cell="lstm", start="learned")
    torch.nn.init.normal_(encoder.starts[0])
    (layer,), found = encoder.layers, encoder(BATCH)
    for row, length in enumerate([5, 2]):
        words = vectors[BATCH.numbers[row, :length]]
        for direction, (order, ending) in enumerate([(1, ""), (-1, "_reverse")]):
            cell = torch.nn.LSTMCell(6, 3)
            cell.load_state_dict({name: getattr(layer, f"{name}_l0{ending}") for name in cell.state_dict()})
            hidden, memory = encoder.starts[0][:, direction]
            states = []
            for word in list(words)[::order]:
                hidden, memory = cell(word[None], (hidden, memory))
                states.append(hidden[0])
            close(found[row, :length, 3 * direction : 3 * direction + 3], torch.stack(states[::order]).detach().numpy())
    assert not found[BATCH.numbers == 0].any()


def test_recurrent_layers_start_as_in_keras():
    torch.manual_seed(0)
    layer = RecurrentEncoder(WordInputs(torch.zeros(1, 40), 0, 0), 30).layers[0]
    assert layer.weight_ih_l0.abs().max().item() <= (6 / (40 + 90)) ** 0.5
    close(layer.weight_hh_l0.T @ layer.weight_hh_l0, np.eye(30))
    assert not layer.bias_ih_l0.any()
    lstm = RecurrentEncoder(WordInputs(torch.zeros(1, 4), 0, 0), 3, cell="lstm").layers[0]
    assert lstm.bias_ih_l0.tolist() == [0] * 3 + [1] * 3 + [0] * 6


def test_stacked_layers_add_their_input():
    torch.manual_seed(0)
    vectors = torch.randn(5, 6)
    encoder = RecurrentEncoder(WordInputs(vectors, 0, 0), 3, layers=2, dropout=0.0)
    tokens = Tokens(torch.tensor([[1, 2, 3]]), torch.tensor([3]))
    first, _ = encoder.layers[0](vectors[tokens.numbers])
    second, _ = encoder.layers[1](first)
    assert torch.allclose(encoder(tokens), first + second, atol=1e-6)


def test_a_convolution_sees_its_neighbours_only():
    torch.manual_seed(0)
    encoder = ConvolutionEncoder(WordInputs(torch.randn(9, 6), 0, 0), 4, dropout=0.0)
    one, other = (encoder(Tokens(torch.tensor([row]), torch.tensor([5])))[0] for row in ([1, 2, 3, 4, 5], [1, 2, 3, 4, 8]))
    assert torch.equal(one[:3], other[:3])
    assert not torch.allclose(one[3], other[3])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"labels": {"encoder": "centroid"}, "encoder": {"units": 7}},
            "states of 14 with label vectors of 8 components; set enc",
        ),
        (
            {"attention": "label", "labels": {"encoder": "centroid"}, "encoder": {"units": 7}},
            "attention=label compares states of 14",
        ),
        ({"labels": {"encoder": "centroid", "variant": "flat"}}, "labels.variant=flat means nothing with encoder=centroid"),
        ({"labels": {"refine": "graph"}}, "labels.refine=graph needs described labels"),
        ({"labels": {"start": "prior"}, "decoder": "mlp"}, "labels.start=prior is for the biases of labels, which decoder=mlp"),
    ],
)
def test_parts_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(BadSettings, match=message):
        build(make(NetworkSettings, settings), torch.zeros(3, 8), 5)


def test_the_shared_decoder_tells_labels_apart_by_their_query_alone():
    torch.manual_seed(0)
    decoder = SharedDecoder(2, (4, 3))
    twice = LabelVectors(torch.tensor([[1.0, 0], [1, 0]]), torch.randn(2, 2))
    found = decoder(LabelAttention(), STATES, twice, LENGTHS)
    assert found[0, 0] == found[0, 1]


def test_labels_that_all_read_the_same_have_no_queries():
    settings = NetworkSettings(attention="first", encoder=EncoderSettings(units=2))
    network = build(settings, torch.zeros(50, 3), labels=7)
    assert sum(weights.numel() for weights in network.label_encoder.parameters()) == 7 * (4 + 1)
    assert network(BATCH).shape == (3, 7)


def test_a_learned_label_has_a_query_an_output_and_a_bias():
    network = LabelNetwork(
        RecurrentEncoder(WordInputs(torch.zeros(2, 4), 0, 0), 3), LearnedLabels(5, 6), LabelAttention(), TanhDecoder(6, 6)
    )
    assert {name for name, _ in network.label_encoder.named_parameters()} == {"query", "output", "bias"}
