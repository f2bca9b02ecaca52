"""Beam search: from the nodes that a document has reached to the best of their children, level by level.

Whether a feature of the document has weights at a node is one bit in a map; a count of bits gives its row. Wide nodes have a map
each, and documents come node by node, so that its weights stay in the cache. Narrow nodes, those of the upper levels of a binary
tree, are too many for that, and ask for too little: they share one map, and their weights lie together feature by feature.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Margins above 1 all cost nothing, so sure labels would tie; this much of the log-score still falls with the margin.
SURE = np.float32(1e-4)


@njit(cache=True, nogil=True)
def fill_maps(chunks, features, maps):  # type: ignore[no-untyped-def]
    """Write the map of each wide node: a bit for each feature that has weights there."""
    for node in range(len(maps)):
        for place in range(chunks[node], chunks[node + 1]):
            maps[node, features[place] >> 5] |= _bit(features[place])
        _count(maps[node])


@njit(cache=True, nogil=True)
def fill_pairs(sizes, features, counts, lanes, values, words, pairs):  # type: ignore[no-untyped-def]
    """Write the map of all narrow nodes, feature by feature a bit for each, and the weights for their first and second child."""
    indices = np.empty(len(features), dtype=np.int64)
    done = 0
    for node in range(len(sizes)):
        for place in range(done, done + sizes[node]):
            indices[place] = np.int64(features[place]) * len(sizes) + node
            words[indices[place] >> 5] |= _bit(indices[place])
        done += sizes[node]
    _count(words)
    item = 0
    for place in range(len(features)):
        row, _ = _find(words, indices[place])
        for _ in range(counts[place]):
            pairs[row, lanes[item]] = values[item]
            item += 1


@njit(cache=True, nogil=True)
def _count(words):  # type: ignore[no-untyped-def]
    """Write above the 32 bits of each word of a map how many stand before it."""
    count = 0
    for place in range(len(words)):
        own = words[place]
        words[place] |= np.uint64(count) << np.uint64(32)
        count += _ones(own)


@njit(cache=True, nogil=True)
def find_pairs(features, node, nodes, words):  # type: ignore[no-untyped-def]
    """The features that have weights at a narrow node, and their rows."""
    found, rows, count = np.empty(features, dtype=np.int32), np.empty(features, dtype=np.int64), 0
    for feature in range(features):
        rows[count], known = _find(words, feature * nodes + node)
        found[count] = feature
        count += known
    return found[:count], rows[:count]


@njit(cache=True, nogil=True, inline="always")
def _bit(index):  # type: ignore[no-untyped-def]
    return np.uint64(1) << np.uint64(index & 31)


@njit(cache=True, nogil=True, inline="always")
def _find(words, index):  # type: ignore[no-untyped-def]
    """The row of a bit in a map, or the next one, and whether the bit is set."""
    word, bit = words[index >> 5], _bit(index)
    return np.int64(word >> np.uint64(32)) + _ones(word & (bit - np.uint64(1))), (word & bit) != 0


@njit(cache=True, nogil=True, inline="always")
def _ones(word):  # type: ignore[no-untyped-def]
    """The number of bits that are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def search(starts, columns, values, tree, narrow, wide, beam, discount, power):  # type: ignore[no-untyped-def]
    """Row starts, labels and scores of everything that the beam reaches.

    One call for the whole way down: for a single document, calls from Python would take longer than the search. `tree` is depth,
    children, labels and bias of a model, `narrow` levels, nodes, map and pairs, `wide` maps, chunks, rows, lanes and weights.
    """
    depth, children, labels, bias = tree
    levels, offset = narrow[:2]
    nodes, scores = _descend(starts, columns, values, children, bias, narrow, beam, discount, power)
    first, last = 0, 1  # the nodes of a level
    for _ in range(levels):
        first, last = children[first], children[last]
    for _ in range(levels, depth - 1):
        logs = _expand(starts, columns, values, nodes, scores, first, last, children, bias, offset, wide, discount, power)
        above, (nodes, scores) = nodes, _room(len(nodes), min(beam, logs.shape[1] * logs.shape[2]))
        for document in range(len(nodes)):
            _best(above[document], logs[document], children, nodes[document], scores[document])
        first, last = children[first], children[last]
    logs = _expand(starts, columns, values, nodes, scores, first, last, children, bias, offset, wide, discount, power)
    return _reached(nodes, logs, children, labels, children[first])


@njit(cache=True, nogil=True)
def _room(documents, slots):  # type: ignore[no-untyped-def]
    """(documents, slots) nodes and log-scores, none yet."""
    return np.full((documents, slots), -1, dtype=np.int32), np.full((documents, slots), -np.inf, dtype=np.float32)


@njit(cache=True, nogil=True, fastmath=True)
def _descend(starts, columns, values, children, bias, narrow, beam, discount, power):  # type: ignore[no-untyped-def]
    """(documents, slots) the best nodes below the narrow levels and their log-scores; none for documents without a feature.

    Document by document: what its features have for the nodes of one level brings that for the next into the cache. A feature
    without weights at a node counts as 0 times those of the next row, for a branch would take longer.
    """
    levels, width, words, pairs = narrow
    documents, slots = len(starts) - 1, min(beam, 2**levels)
    nodes, scores = _room(documents, slots)
    above, logs = np.empty(slots, dtype=np.int32), np.empty((slots, 2), dtype=np.float32)
    for document in range(documents):
        if starts[document] == starts[document + 1]:
            continue
        nodes[document, 0], scores[document, 0] = 0, 0
        for _ in range(levels):
            above[:] = nodes[document]
            for slot in range(slots):
                node = above[slot]
                if node < 0:
                    break
                left, right = np.float32(0), np.float32(0)
                for place in range(starts[document], starts[document + 1]):
                    row, known = _find(words, columns[place] * width + node)
                    value = values[place] if known else np.float32(0)
                    left += value * pairs[row, 0]
                    right += value * pairs[row, 1]
                first, last = children[node], children[node + 1] - 1  # the same where there is one child
                score = scores[document, slot] * discount
                logs[slot, 0], logs[slot, 1] = _score(score, bias[first] + left, power), _score(score, bias[last] + right, power)
            nodes[document] = -1
            _best(above, logs, children, nodes[document], scores[document])
    return nodes, scores


@njit(cache=True, nogil=True, fastmath=True)
def _expand(starts, columns, values, nodes, scores, begin, end, children, bias, offset, wide, discount, power):  # type: ignore[no-untyped-def]
    """(documents, slots, children) log-scores of the children of each document's nodes; nothing that counts where there is none.

    Node by node, not document by document, so that the weights of a node stay in the cache.
    """
    maps, chunks, rows, lanes, weights = wide
    documents, slots = nodes.shape
    widest = 0
    for node in range(begin, end):
        widest = max(widest, children[node + 1] - children[node])
    logs = np.empty((documents, slots, widest), dtype=np.float32)
    order, ends = _by_node(nodes, begin, end)
    margin = np.empty(widest, dtype=np.float32)
    longest = 0
    for document in range(documents):
        longest = max(longest, starts[document + 1] - starts[document])
    held = np.empty(longest, dtype=np.float32)
    begins, stops = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    done = 0
    for node in range(begin, end):
        first, width = children[node], children[node + 1] - children[node]
        words, chunk = maps[node - offset], chunks[node - offset]
        for pair in range(done, ends[node - begin]):
            document, slot = order[pair] // slots, order[pair] % slots
            for lane in range(width):
                margin[lane] = bias[first + lane]
            # A document's weights lie all over the memory: loops without a branch let the processor wait for many at once.
            hits = 0
            for place in range(starts[document], starts[document + 1]):
                row, known = _find(words, columns[place])
                begins[hits], held[hits] = chunk + row, values[place]
                hits += known
            for hit in range(hits):
                row = begins[hit]
                begins[hit], stops[hit] = rows[row], rows[row + 1]
            for hit in range(hits):
                margin[lanes[begins[hit]]] += held[hit] * weights[begins[hit]]
            for hit in range(hits):
                for item in range(begins[hit] + 1, stops[hit]):
                    margin[lanes[item]] += held[hit] * weights[item]
            above = scores[document, slot] * discount
            out = logs[document, slot]
            for lane in range(width):
                out[lane] = _score(above, margin[lane], power)
        done = ends[node - begin]
    return logs


@njit(cache=True, nogil=True, fastmath=True)
def _score(above, margin, power):  # type: ignore[no-untyped-def]
    """The log-score of a child."""
    short = max(np.float32(0.0), np.float32(1.0) - margin)
    sure = SURE / (np.float32(1.0) + max(margin, np.float32(1.0)))
    if power == 0:
        return above - np.log(np.float32(1.0) + np.exp(-margin))
    return above - sure - (short * short if power == 2 else short * short * short)


@njit(cache=True, nogil=True)
def _by_node(nodes, begin, end):  # type: ignore[no-untyped-def]
    """(document, slot) pairs as one number, sorted by node, and where each node's end."""
    ends = np.zeros(end - begin, dtype=np.int64)
    for node in nodes.flat:
        if node >= 0:
            ends[node - begin] += 1
    total = 0
    for node in range(end - begin):
        total += ends[node]
        ends[node] = total - ends[node]  # for now where it starts
    order = np.empty(total, dtype=np.int64)
    for pair, node in enumerate(nodes.flat):
        if node >= 0:
            order[ends[node - begin]] = pair
            ends[node - begin] += 1
    return order, ends


@njit(cache=True, nogil=True)
def _best(nodes, logs, children, found, scores):  # type: ignore[no-untyped-def]
    """Write the best children of a document's nodes and their log-scores, best first; of equal ones the first."""
    count, keep = 0, len(found)
    for slot in range(len(nodes)):
        node = nodes[slot]
        if node < 0:
            break
        for lane in range(children[node + 1] - children[node]):
            value = logs[slot, lane]
            if count == keep and value <= scores[keep - 1]:
                continue
            place = count if count < keep else keep - 1
            while place > 0 and scores[place - 1] < value:
                scores[place], found[place] = scores[place - 1], found[place - 1]
                place -= 1
            scores[place], found[place] = value, children[node] + lane
            count = min(count + 1, keep)


@njit(cache=True, nogil=True, fastmath=True)
def _reached(nodes, logs, children, labels, first):  # type: ignore[no-untyped-def]
    """Row starts, labels and scores of everything that the beam reached; `first` is the node of the first label."""
    documents, slots = nodes.shape
    starts = np.zeros(documents + 1, dtype=np.int64)
    for document in range(documents):
        starts[document + 1] = starts[document]
        for node in nodes[document]:
            if node >= 0:
                starts[document + 1] += children[node + 1] - children[node]
    columns, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    at = 0
    for document in range(documents):
        for slot in range(slots):
            node, out = nodes[document, slot], logs[document, slot]
            if node >= 0:
                for lane in range(children[node + 1] - children[node]):
                    columns[at] = labels[children[node] + lane - first]
                    values[at] = np.exp(out[lane])
                    at += 1
    return starts, columns, values


@njit(cache=True, nogil=True)
def average(starts, columns, values, matrices, width):  # type: ignore[no-untyped-def]
    """Row starts, columns and mean values of several sparse matrices, given one after the other."""
    rows = len(starts) // matrices - 1
    out_starts = np.zeros(rows + 1, dtype=np.int64)
    out_columns, out_values = np.empty(len(columns), dtype=np.int32), np.empty(len(columns), dtype=np.float32)
    offsets = np.zeros(matrices, dtype=np.int64)
    for matrix in range(1, matrices):
        offsets[matrix] = offsets[matrix - 1] + starts[matrix * (rows + 1) - 1]
    place = np.full(width, -1, dtype=np.int64)
    share = np.float32(1.0) / np.float32(matrices)
    filled = 0
    for row in range(rows):
        first = filled
        for matrix in range(matrices):
            at = matrix * (rows + 1) + row
            for item in range(offsets[matrix] + starts[at], offsets[matrix] + starts[at + 1]):
                column = columns[item]
                if place[column] < first:
                    place[column] = filled
                    out_columns[filled], out_values[filled] = column, values[item] * share
                    filled += 1
                else:
                    out_values[place[column]] += values[item] * share
        out_starts[row + 1] = filled
    return out_starts, out_columns[:filled], out_values[:filled]
