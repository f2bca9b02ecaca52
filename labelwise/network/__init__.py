"""Label-wise networks in torch: encoders, attention over the words of a document, training."""
