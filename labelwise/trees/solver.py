"""L2-regularised linear classifiers by dual coordinate descent, all lanes of a node side by side (SPEC 12.3).

One pass over a node's rows updates a block of lanes (children or labels) at once: weights are stored [feature, lane], so that
each non-zero value costs one contiguous vector operation. Features of the node are numbered anew; those seen in a single row need
no weight while training (their share of the margin is y·α·Σx²) and are recovered at the end.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SQUARED_HINGE, LOGISTIC = 0, 1


@njit(cache=True, nogil=True)
def localise(indptr, indices, data, rows, features):  # type: ignore[no-untyped-def]
    """The rows of a node over its own features: those of two or more rows, in ascending order, then the rest row by row.

    Gives (feature ids, row starts, local features, values, row starts of singles, single features, single values).
    """
    count = np.zeros(features, dtype=np.int32)
    for row in rows:
        for place in range(indptr[row], indptr[row + 1]):
            count[indices[place]] += 1
    shared = 0
    for feature in range(features):
        if count[feature] > 1:
            shared += 1
    own = np.empty(shared, dtype=np.int32)
    shared = 0
    for feature in range(features):
        if count[feature] > 1:
            own[shared] = feature
            count[feature] = shared
            shared += 1
        elif count[feature] == 1:
            count[feature] = -1
    starts, single_starts = np.zeros(len(rows) + 1, dtype=np.int64), np.zeros(len(rows) + 1, dtype=np.int64)
    for item in range(len(rows)):
        single = 0
        for place in range(indptr[rows[item]], indptr[rows[item] + 1]):
            single += count[indices[place]] < 0
        single_starts[item + 1] = single_starts[item] + single
        starts[item + 1] = starts[item] + indptr[rows[item] + 1] - indptr[rows[item]] - single
    local, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    singles, single_values = np.empty(single_starts[-1], dtype=np.int32), np.empty(single_starts[-1], dtype=np.float32)
    for item in range(len(rows)):
        at, single = starts[item], single_starts[item]
        for place in range(indptr[rows[item]], indptr[rows[item] + 1]):
            if count[indices[place]] < 0:
                singles[single], single_values[single] = indices[place], data[place]
                single += 1
            else:
                local[at], values[at] = count[indices[place]], data[place]
                at += 1
    return own, starts, local, values, single_starts, singles, single_values


@njit(cache=True, nogil=True, fastmath=True)
def solve(starts, local, values, squares, single_squares, signs, features, cost, eps, passes, seed, loss):  # type: ignore[no-untyped-def]
    """Weights (features + 1, lanes), the last row the bias, and step sizes y·α (rows, lanes) of one block of lanes."""
    rows, lanes = signs.shape
    weights = np.zeros((features + 1, lanes), dtype=np.float32)
    bias = weights[features]
    alpha = np.zeros((rows, lanes), dtype=np.float32)
    diagonal = np.float32(0.5 / cost)
    order = np.arange(rows, dtype=np.int32)
    margin, step = np.empty(lanes, dtype=np.float32), np.empty(lanes, dtype=np.float32)
    high, low = np.empty(lanes, dtype=np.float32), np.empty(lanes, dtype=np.float32)
    state = np.uint32(2463534242 + 2654435761 * seed)
    for _ in range(passes):
        for item in range(rows - 1, 0, -1):
            state ^= state << np.uint32(13)
            state ^= state >> np.uint32(17)
            state ^= state << np.uint32(5)
            other = np.int64((np.uint64(state) * np.uint64(item + 1)) >> np.uint64(32))
            order[item], order[other] = order[other], order[item]
        high[:] = -np.inf
        low[:] = np.inf
        for item in range(rows):
            row = order[item]
            begin, end = starts[row], starts[row + 1]
            for lane in range(lanes):
                margin[lane] = bias[lane]
            place = begin
            while place + 4 <= end:
                a, b, c, d = (
                    weights[local[place]],
                    weights[local[place + 1]],
                    weights[local[place + 2]],
                    weights[local[place + 3]],
                )
                p, q, r, s = values[place], values[place + 1], values[place + 2], values[place + 3]
                for lane in range(lanes):
                    margin[lane] += p * a[lane] + q * b[lane] + r * c[lane] + s * d[lane]
                place += 4
            while place < end:
                a = weights[local[place]]
                p = values[place]
                for lane in range(lanes):
                    margin[lane] += p * a[lane]
                place += 1
            own, sign = alpha[row], signs[row]
            extra = diagonal + single_squares[row]
            scale = np.float32(1.0) / (squares[row] + diagonal)
            moved = np.float32(0.0)
            for lane in range(lanes):
                gradient = sign[lane] * margin[lane] - np.float32(1.0) + own[lane] * extra
                projected = min(gradient, np.float32(0.0)) if own[lane] <= np.float32(0.0) else gradient
                high[lane] = max(high[lane], projected)
                low[lane] = min(low[lane], projected)
                after = max(own[lane] - projected * scale, np.float32(0.0))
                change = after - own[lane]
                own[lane] = after
                step[lane] = change * sign[lane]
                moved = max(moved, abs(change))
            if moved == np.float32(0.0):
                continue
            for lane in range(lanes):
                bias[lane] += step[lane]
            place = begin
            while place + 2 <= end:
                a, b = weights[local[place]], weights[local[place + 1]]
                p, q = values[place], values[place + 1]
                for lane in range(lanes):
                    a[lane] += p * step[lane]
                    b[lane] += q * step[lane]
                place += 2
            while place < end:
                a = weights[local[place]]
                p = values[place]
                for lane in range(lanes):
                    a[lane] += p * step[lane]
                place += 1
        worst = np.float32(0.0)
        for lane in range(lanes):
            worst = max(worst, high[lane] - low[lane])
        if worst <= eps:
            break
    for row in range(rows):
        for lane in range(lanes):
            alpha[row, lane] *= signs[row, lane]
    return weights, alpha


@njit(cache=True, nogil=True)
def harvest(weights, alpha, own, single_starts, singles, single_values, threshold):  # type: ignore[no-untyped-def]
    """Feature, lane and value of the weights above the threshold, features ascending; singles are merged in."""
    lanes = weights.shape[1]
    shared = len(own)
    total = 0
    for item in range(shared):
        row = weights[item]
        for lane in range(lanes):
            total += abs(row[lane]) > threshold
    for item in range(alpha.shape[0]):
        for place in range(single_starts[item], single_starts[item + 1]):
            for lane in range(lanes):
                total += abs(alpha[item, lane] * single_values[place]) > threshold
    features, columns, kept = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int32), np.empty(total, dtype=np.float32)
    total = 0
    for item in range(shared):
        row = weights[item]
        for lane in range(lanes):
            if abs(row[lane]) > threshold:
                features[total], columns[total], kept[total] = own[item], lane, row[lane]
                total += 1
    for item in range(alpha.shape[0]):
        for place in range(single_starts[item], single_starts[item + 1]):
            for lane in range(lanes):
                value = alpha[item, lane] * single_values[place]
                if abs(value) > threshold:
                    features[total], columns[total], kept[total] = singles[place], lane, value
                    total += 1
    return features, columns, kept
