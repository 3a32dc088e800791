"""Kinds of evidence: what each shows of a candidate, and how many independent equations it has."""
