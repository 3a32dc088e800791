"""Rounds that are made to fool certificates, decoded and compared with the truth.

    python -m benchmarks.adversary --data-dir DIR --out adversary.csv --markdown adversary-table.md

- `scenes`: what one such round consists of, and the data it is drawn from.
- `batches`, `networks`, `updates`: the families, small functions that make scenes.
- `families`: the table of all of them, and the plan of a run.
- `truth`: the comparison with the truth, which shares nothing with `gradpeel.scoring`.
- `measuring`: one cell of the plan, decoded and compared.
- `summary`: totals by family.
"""
