"""Beam search: from the nodes that a document has reached to the best of their children, level by level.

Whether a feature of the document has weights at a node is one bit in a map of the node's features; a count of bits gives its row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Margins above 1 all cost nothing, so sure labels would tie; this much of the log-score still falls with the margin.
SURE = np.float32(1e-4)


@njit(cache=True, nogil=True)
def fill_maps(chunks, features, maps):  # type: ignore[no-untyped-def]
    """Write per node and 32 features a bit for each that has weights there, and above them how many of them stand before."""
    nodes, words = maps.shape
    for node in range(nodes):
        for place in range(chunks[node], chunks[node + 1]):
            maps[node, features[place] >> 5] |= np.uint64(1) << np.uint64(features[place] & 31)
        count = 0
        for word in range(words):
            own = maps[node, word]
            maps[node, word] |= np.uint64(count) << np.uint64(32)
            count += _ones(own)


@njit(cache=True, nogil=True, inline="always")
def _ones(word):  # type: ignore[no-untyped-def]
    """The number of bits that are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def search(starts, columns, values, tree, maps, beam, discount, power):  # type: ignore[no-untyped-def]
    """Row starts, labels and scores of everything that the beam reaches.

    One call for the whole way down: for a single document, calls from Python would take longer than the search. `tree` is depth,
    children, labels, chunks, rows, lanes, weights and bias of a model.
    """
    depth, children, labels = tree[:3]
    documents = len(starts) - 1
    nodes, scores = np.zeros((documents, 1), dtype=np.int32), np.zeros((documents, 1), dtype=np.float32)
    first, last = 0, 1  # the nodes of a level
    for _ in range(depth - 1):
        logs = _expand(starts, columns, values, nodes, scores, first, last, children, tree[3:], maps, discount, power)
        nodes, scores = _best(nodes, logs, children, beam)
        first, last = children[first], children[last]
    logs = _expand(starts, columns, values, nodes, scores, first, last, children, tree[3:], maps, discount, power)
    return _reached(nodes, logs, children, labels, children[first])


@njit(cache=True, nogil=True, fastmath=True)
def _expand(starts, columns, values, nodes, scores, begin, end, children, classifiers, maps, discount, power):  # type: ignore[no-untyped-def]
    """(documents, slots, children) log-scores of the children of each document's nodes; -inf where there is none.

    Node by node, not document by document, so that the weights of a node stay in the cache.
    """
    chunks, rows, lanes, weights, bias = classifiers
    documents, slots = nodes.shape
    widest = 0
    for node in range(begin, end):
        widest = max(widest, children[node + 1] - children[node])
    logs = np.full((documents, slots, widest), -np.inf, dtype=np.float32)
    order, ends = _by_node(nodes, begin, end, starts)
    margin = np.empty(widest, dtype=np.float32)
    longest = 0
    for document in range(documents):
        longest = max(longest, starts[document + 1] - starts[document])
    held = np.empty(longest, dtype=np.float32)
    begins, stops = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    done = 0
    for node in range(begin, end):
        first, width = children[node], children[node + 1] - children[node]
        words, chunk = maps[node], chunks[node]
        for pair in range(done, ends[node - begin]):
            document, slot = order[pair] // slots, order[pair] % slots
            for lane in range(width):
                margin[lane] = bias[first + lane]
            # A document's weights lie all over the memory: loops without a branch let the processor wait for many at once.
            hits = 0
            for place in range(starts[document], starts[document + 1]):
                feature = columns[place]
                word, bit = words[feature >> 5], np.uint64(1) << np.uint64(feature & 31)
                begins[hits] = chunk + np.int64(word >> np.uint64(32)) + _ones(word & (bit - np.uint64(1)))
                held[hits] = values[place]
                hits += (word & bit) != 0
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
                short = max(np.float32(0.0), np.float32(1.0) - margin[lane])
                sure = SURE / (np.float32(1.0) + max(margin[lane], np.float32(1.0)))
                if power == 0:
                    out[lane] = above - np.log(np.float32(1.0) + np.exp(-margin[lane]))
                else:
                    out[lane] = above - sure - (short * short if power == 2 else short * short * short)
        done = ends[node - begin]
    return logs


@njit(cache=True, nogil=True)
def _by_node(nodes, begin, end, starts):  # type: ignore[no-untyped-def]
    """(document, slot) pairs as one number, sorted by node, and where each node's end; not for documents without a feature."""
    documents, slots = nodes.shape
    ends = np.zeros(end - begin, dtype=np.int64)
    for document in range(documents):
        if starts[document] < starts[document + 1]:
            for slot in range(slots):
                if nodes[document, slot] >= 0:
                    ends[nodes[document, slot] - begin] += 1
    total = 0
    for node in range(end - begin):
        total += ends[node]
        ends[node] = total - ends[node]  # for now where it starts
    order = np.empty(total, dtype=np.int64)
    for document in range(documents):
        if starts[document] < starts[document + 1]:
            for slot in range(slots):
                node = nodes[document, slot]
                if node >= 0:
                    order[ends[node - begin]] = document * slots + slot
                    ends[node - begin] += 1
    return order, ends


@njit(cache=True, nogil=True)
def _best(nodes, logs, children, beam):  # type: ignore[no-untyped-def]
    """(documents, beam) the best children and their log-scores, best first; of equal ones the first; -1 where there are fewer."""
    documents, slots, widest = logs.shape
    keep = min(beam, slots * widest)
    found, scores = np.full((documents, keep), -1, dtype=np.int32), np.full((documents, keep), -np.inf, dtype=np.float32)
    for document in range(documents):
        count = 0
        own, score = found[document], scores[document]
        for slot in range(slots):
            node = nodes[document, slot]
            if node < 0:
                continue
            for lane in range(children[node + 1] - children[node]):
                value = logs[document, slot, lane]
                if value == -np.inf or (count == keep and value <= score[keep - 1]):
                    continue
                place = count if count < keep else keep - 1
                while place > 0 and score[place - 1] < value:
                    score[place], own[place] = score[place - 1], own[place - 1]
                    place -= 1
                score[place], own[place] = value, children[node] + lane
                count = min(count + 1, keep)
    return found, scores


@njit(cache=True, nogil=True, fastmath=True)
def _reached(nodes, logs, children, labels, first):  # type: ignore[no-untyped-def]
    """Row starts, labels and scores of everything that the beam reached; `first` is the node of the first label."""
    documents, slots, _ = logs.shape
    starts = np.zeros(documents + 1, dtype=np.int64)
    for document in range(documents):
        count = 0
        for slot in range(slots):
            node = nodes[document, slot]
            if node >= 0 and logs[document, slot, 0] > -np.inf:
                count += children[node + 1] - children[node]
        starts[document + 1] = starts[document] + count
    columns, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    for document in range(documents):
        at = starts[document]
        for slot in range(slots):
            node = nodes[document, slot]
            if node >= 0 and logs[document, slot, 0] > -np.inf:
                out = logs[document, slot]
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
