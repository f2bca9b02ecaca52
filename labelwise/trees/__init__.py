"""Label trees: numba kernels for clustering, training and beam search, with no text in them."""
