"""Ways to classify, all under one contract (base.py)."""
