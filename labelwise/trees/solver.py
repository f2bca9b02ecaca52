"""L2-regularised linear classifiers by dual coordinate descent, all lanes of a node side by side (SPEC 12.3).

One pass over a node's rows updates a block of lanes (children or labels) at once: weights are stored [feature, lane], so that
each non-zero value costs one contiguous vector operation. Features of the node are numbered anew; those seen in a single row need
no weight while training (their share of the margin is y·α·Σx²) and are recovered at the end.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Steps a little longer than the best for one coordinate alone: successive over-relaxation, which converges for factors below 2
# and needs a fifth fewer passes here.
RELAXATION = np.float32(1.4)


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


@njit(cache=True, nogil=True)
def solve(node, squares, single_squares, signs, lanes, cost, eps, passes, threshold, seed, logistic):  # type: ignore[no-untyped-def]
    """Feature, lane and value of each weight above the threshold, and the biases, of one block of lanes of a localised node.

    Minimises ½‖w‖² + C Σ max(0, 1 - y w·x)², or with `logistic` ½‖w‖² + C Σ log(1 + exp(-y w·x)). A lane is done when its
    projected gradients spread by at most `eps`; lanes that are done are taken out between passes, so that the slow ones do not
    keep the others running. The weights of all features are by far the largest array, so there is never a second one.
    """
    own, starts, local, values, single_starts, singles, single_values = node
    rows, width = signs.shape
    weights, alpha = np.zeros((len(own) + 1, width), dtype=np.float32), np.zeros((rows, width), dtype=np.float32)
    lane_of = np.where(np.arange(width) < lanes, np.arange(width), -1)
    diagonal = np.float32(0.5) / cost
    order = np.arange(rows, dtype=np.int32)
    state = np.uint64(88172645463325252) + np.uint64(seed)
    bias, found = np.zeros(lanes, dtype=np.float32), []
    for number in range(passes):
        state = _shuffle(order, state)
        spread = _sweep_rows(
            starts, local, values, squares, single_squares, signs, weights, alpha, diagonal, cost, order, logistic
        )
        going = (spread > eps) & (lane_of >= 0) & (number < passes - 1)
        left = going.sum()
        if left > 0.75 * width:
            continue  # a copy would cost more than it saves
        done = np.flatnonzero(~going & (lane_of >= 0))
        bias[lane_of[done]] = weights[len(own)][done]
        found.append(_harvest(weights, alpha, signs, done, lane_of, own, single_starts, singles, single_values, threshold))
        if not left:
            break
        kept = _padded(np.flatnonzero(going))
        weights, alpha, signs = _take_lanes(weights, kept), _take_lanes(alpha, kept), _take_lanes(signs, kept)
        lane_of = np.array([lane_of[lane] if lane >= 0 else -1 for lane in kept])
        width = len(kept)
    return found, bias


@njit(cache=True, nogil=True, fastmath=True)
def _sweep_rows(starts, local, values, squares, single_squares, signs, weights, alpha, diagonal, cost, order, logistic):  # type: ignore[no-untyped-def]
    """One pass of dual coordinate descent over the rows in a given order; gives the spread of projected gradients per lane."""
    lanes = weights.shape[1]
    margin, step = np.empty(lanes, dtype=np.float32), np.empty(lanes, dtype=np.float32)
    chosen = np.empty(lanes, dtype=np.uint32)  # an index that cannot be negative is not checked for it
    high, low = np.full(lanes, -np.inf, dtype=np.float32), np.full(lanes, np.inf, dtype=np.float32)
    bias = weights[weights.shape[0] - 1]
    for item in range(len(order)):
        row = order[item]
        begin, end = starts[row], starts[row + 1]
        for lane in range(lanes):
            margin[lane] = bias[lane]
        place = begin
        while place + 4 <= end:
            a, b, c, d = weights[local[place]], weights[local[place + 1]], weights[local[place + 2]], weights[local[place + 3]]
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
        scale = RELAXATION / (squares[row] + diagonal)
        moved = np.float32(0.0)
        for lane in range(lanes if logistic else 0):
            margin[lane] = sign[lane] * margin[lane] + own[lane] * single_squares[row]
            after, gradient = _logistic_step(margin[lane], own[lane], squares[row], cost)
            high[lane] = max(high[lane], gradient)
            low[lane] = min(low[lane], gradient)
            step[lane] = (after - own[lane]) * sign[lane]
            own[lane] = after
            moved = np.float32(1.0)
        for lane in range(0 if logistic else lanes):
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
        few = 0
        for lane in range(lanes):
            chosen[few] = lane
            few += step[lane] != np.float32(0.0)
        if 8 * few <= lanes:  # rare labels: hardly any lane moves, and the others need not be written
            for lane in chosen[:few]:
                bias[lane] += step[lane]
                for place in range(begin, end):
                    weights[np.uint32(local[place]), lane] += values[place] * step[lane]
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
    return high - low


@njit(cache=True, nogil=True, fastmath=True)
def _logistic_step(margin, own, square, cost):  # type: ignore[no-untyped-def]
    """The best α of one row given all others (Yu, Huang and Lin 2011), and the gradient before.

    The condition is m + q (α - α₀) + log(α / (C - α)) = 0; with α = C σ(s) it is smooth in s and Newton's method finds the root
    between the two values that α = 0 and α = C leave for it.
    """
    least = np.float32(1e-8) * cost
    held = min(max(own, least), cost - least)
    place = np.log(held / (cost - held))
    gradient = margin + place
    lowest, highest = -(margin + square * (cost - own)), -(margin - square * own)
    place = min(max(place, lowest), highest)
    for _ in range(30):
        share = np.float32(1.0) / (np.float32(1.0) + np.exp(-place))
        miss = margin + square * (cost * share - own) + place
        if abs(miss) < np.float32(1e-4):
            break
        if miss > 0:
            highest = place
        else:
            lowest = place
        place -= miss / (np.float32(1.0) + square * cost * share * (np.float32(1.0) - share))
        if not lowest < place < highest:  # Newton overshot: halve the interval instead
            place = np.float32(0.5) * (lowest + highest)
    return cost / (np.float32(1.0) + np.exp(-place)), gradient


@njit(cache=True, nogil=True)
def _padded(lanes):  # type: ignore[no-untyped-def]
    """Lanes filled up with -1 to a multiple of 8, which vector instructions like; a few lanes stay as they are."""
    width = len(lanes) if len(lanes) <= 8 else (len(lanes) + 7) // 8 * 8
    padded = np.full(width, -1, dtype=np.int64)
    padded[: len(lanes)] = lanes
    return padded


@njit(cache=True, nogil=True)
def _shuffle(order, state):  # type: ignore[no-untyped-def]
    """Put an order into another one, in place, and give the generator's next state: xorshift, cheap and the same everywhere."""
    for item in range(len(order) - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        other = np.int64(((state >> np.uint64(32)) * np.uint64(item + 1)) >> np.uint64(32))
        order[item], order[other] = order[other], order[item]
    return state


@njit(cache=True, nogil=True)
def _take_lanes(matrix, lanes):  # type: ignore[no-untyped-def]
    """Some columns of a matrix, ascending, moved together in its own memory; zeros for -1, and signs of 0 keep a weight at 0."""
    rows, width = matrix.shape
    flat = matrix.reshape(-1)
    place = 0
    for row in range(rows):
        for lane in lanes:
            flat[place] = flat[row * width + lane] if lane >= 0 else 0
            place += 1
    return flat[:place].reshape((rows, len(lanes)))


@njit(cache=True, nogil=True)
def _harvest(weights, alpha, signs, done, lane_of, own, single_starts, singles, single_values, threshold):  # type: ignore[no-untyped-def]
    """Feature, lane and value of the weights above the threshold of lanes that are done: shared features, then singles."""
    total = 0
    for item in range(len(own)):
        for lane in done:
            total += abs(weights[item, lane]) > threshold
    for item in range(len(alpha)):
        for place in range(single_starts[item], single_starts[item + 1]):
            for lane in done:
                total += abs(alpha[item, lane] * single_values[place]) > threshold
    features, columns, kept = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int32), np.empty(total, dtype=np.float32)
    total = 0
    for item in range(len(own)):
        for lane in done:
            value = weights[item, lane]
            if abs(value) > threshold:
                features[total], columns[total], kept[total] = own[item], lane_of[lane], value
                total += 1
    for item in range(len(alpha)):
        for place in range(single_starts[item], single_starts[item + 1]):
            for lane in done:
                value = alpha[item, lane] * signs[item, lane] * single_values[place]
                if abs(value) > threshold:
                    features[total], columns[total], kept[total] = singles[place], lane_of[lane], value
                    total += 1
    return features, columns, kept


@njit(cache=True, nogil=True)
def signs_of(indptr, indices, rows, first, last):  # type: ignore[no-untyped-def]
    """(rows, lanes) 1 where a row belongs to a lane, else -1; lanes are the columns from `first` to `last`, the padding is 0."""
    signs = np.zeros((len(rows), len(_padded(np.arange(last - first)))), dtype=np.int8)
    signs[:, : last - first] = -1
    for item in range(len(rows)):
        for place in range(indptr[rows[item]], indptr[rows[item] + 1]):
            column = indices[place]
            if first <= column < last:
                signs[item, column - first] = 1
    return signs
