"""Readers of published data sets, and made worlds with a known truth."""
