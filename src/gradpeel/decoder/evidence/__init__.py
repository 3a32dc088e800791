"""Kinds of evidence: what each says of a candidate, and how many independent equations it has."""
