"""Studies: many methods on corpora, several times each, and the tables and pages made of them."""
