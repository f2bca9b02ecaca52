"""Beam search: from the nodes that a document has reached to the best of their children, level by level.

Whether a feature of the document has weights at a node is one bit in a map of the node's features; a count of bits gives its row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Margins above 1 all cost nothing, so sure labels would tie; this much of the log-score still falls with the margin.
SURE = np.float32(1e-4)


@njit(cache=True, nogil=True)
def bitmaps(chunks, features, width):  # type: ignore[no-untyped-def]
    """Per node a bit for each feature it has weights for, and how many features stand before each word of 64 bits."""
    nodes, words = len(chunks) - 1, (width + 63) // 64
    bits, ranks = np.zeros((nodes, words), dtype=np.uint64), np.zeros((nodes, words), dtype=np.int32)
    for node in range(nodes):
        for place in range(chunks[node], chunks[node + 1]):
            feature = features[place]
            bits[node, feature >> 6] |= np.uint64(1) << np.uint64(feature & 63)
        count = 0
        for word in range(words):
            ranks[node, word] = count
            count += _ones(bits[node, word])
    return bits, ranks


@njit(cache=True, nogil=True, inline="always")
def _ones(word):  # type: ignore[no-untyped-def]
    """The number of bits that are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True, fastmath=True)
def expand(starts, columns, values, nodes, scores, children, chunks, rows, lanes, weights, bias, bits, ranks, discount, power):  # type: ignore[no-untyped-def]
    """(documents, slots, children) log-scores of the children of each document's nodes; -inf where there is none.

    Node by node, not document by document, so that the weights of a node stay in the cache.
    """
    documents, slots = nodes.shape
    widest = 0
    for node in range(len(children) - 1):
        widest = max(widest, children[node + 1] - children[node])
    logs = np.full((documents, slots, widest), -np.inf, dtype=np.float32)
    order, ends = _by_node(nodes, len(children) - 1, starts)
    margin = np.empty(widest, dtype=np.float32)
    begin = 0
    for node in range(len(ends)):
        first, width = children[node], children[node + 1] - children[node]
        bitmap, rank, chunk = bits[node], ranks[node], chunks[node]
        for pair in range(begin, ends[node]):
            document, slot = order[pair] // slots, order[pair] % slots
            for lane in range(width):
                margin[lane] = bias[first + lane]
            for place in range(starts[document], starts[document + 1]):
                feature = columns[place]
                word = bitmap[feature >> 6]
                bit = np.uint64(1) << np.uint64(feature & 63)
                if word & bit:
                    row = chunk + rank[feature >> 6] + _ones(word & (bit - np.uint64(1)))
                    value = values[place]
                    for item in range(rows[row], rows[row + 1]):
                        margin[lanes[item]] += value * weights[item]
            above = scores[document, slot] * discount
            out = logs[document, slot]
            for lane in range(width):
                short = max(np.float32(0.0), np.float32(1.0) - margin[lane])
                sure = SURE / (np.float32(1.0) + max(margin[lane], np.float32(1.0)))
                if power == 0:
                    out[lane] = above - np.log(np.float32(1.0) + np.exp(-margin[lane]))
                else:
                    out[lane] = above - sure - (short * short if power == 2 else short * short * short)
        begin = ends[node]
    return logs


@njit(cache=True, nogil=True)
def _by_node(nodes, count, starts):  # type: ignore[no-untyped-def]
    """(document, slot) pairs as one number, sorted by node, and where each node's end; not for documents without a feature."""
    documents, slots = nodes.shape
    ends = np.zeros(count, dtype=np.int64)
    for document in range(documents):
        if starts[document] < starts[document + 1]:
            for slot in range(slots):
                if nodes[document, slot] >= 0:
                    ends[nodes[document, slot]] += 1
    total = 0
    for node in range(count):
        total += ends[node]
        ends[node] = total - ends[node]  # for now where it starts
    order = np.empty(total, dtype=np.int64)
    for document in range(documents):
        if starts[document] < starts[document + 1]:
            for slot in range(slots):
                node = nodes[document, slot]
                if node >= 0:
                    order[ends[node]] = document * slots + slot
                    ends[node] += 1
    return order, ends


@njit(cache=True, nogil=True)
def best(nodes, logs, children, beam):  # type: ignore[no-untyped-def]
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
def reached(nodes, logs, children, labels):  # type: ignore[no-untyped-def]
    """Row starts, labels and scores of everything that the beam reached."""
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
                    columns[at] = labels[children[node] + lane]
                    values[at] = np.exp(out[lane])
                    at += 1
    return starts, columns, values


@njit(cache=True, nogil=True)
def average(starts, columns, values, width):  # type: ignore[no-untyped-def]
    """Row starts, columns and mean values of several sparse matrices; `starts` is (matrices, rows + 1) into the joined others."""
    matrices, rows = starts.shape[0], starts.shape[1] - 1
    out_starts = np.zeros(rows + 1, dtype=np.int64)
    out_columns, out_values = np.empty(len(columns), dtype=np.int32), np.empty(len(columns), dtype=np.float32)
    place = np.full(width, -1, dtype=np.int64)
    share = np.float32(1.0) / np.float32(matrices)
    filled = 0
    for row in range(rows):
        first = filled
        for matrix in range(matrices):
            for item in range(starts[matrix, row], starts[matrix, row + 1]):
                column = columns[item]
                if place[column] < first:
                    place[column] = filled
                    out_columns[filled], out_values[filled] = column, values[item] * share
                    filled += 1
                else:
                    out_values[place[column]] += values[item] * share
        out_starts[row + 1] = filled
    return out_starts, out_columns[:filled], out_values[:filled]
