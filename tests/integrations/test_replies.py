"""What a server that only reads can take from a reply."""

from __future__ import annotations

import torch

from gradpeel.integrations.replies import Reading, Reply, read_reply, replies_table
from integrations.small_clients import CLIENT, RECORDS, make_model, trained


def test_it_counts_samples_and_labels() -> None:
    client = trained()
    found = read_reply(make_model(), client.before, client.after, client=CLIENT, samples=RECORDS)
    assert (found.certified, found.complete, found.failed) == (RECORDS, True, None)
    assert found.labels == {0: 2, 1: 1, 2: 1}
    assert "next layer" in found.evidence


def test_it_holds_no_samples() -> None:
    client = trained()
    found = read_reply(make_model(), client.before, client.after, client=CLIENT, samples=None)
    assert not any(isinstance(value, torch.Tensor) for value in vars(found).values())


def test_what_cannot_be_read_is_named() -> None:
    client = trained()
    other = {"0.weight": client.before["0.weight"]}
    same = read_reply(make_model(), client.before, client.before, client=CLIENT, samples=4)
    assert same.failed == "before, after: no weight has changed: there is nothing to decode"
    missing = read_reply(make_model(), other, other, client=CLIENT, samples=4)
    assert missing.failed is not None
    assert "\n" not in missing.failed


def test_the_table_has_a_row_for_each_reply() -> None:
    readings = [
        Reading(8, 8, 3, {0: 5, 7: 3}, ("bias equation",), complete=True),
        Reading(None, 2, 1, {1: 2}),
        Reading(8, failed="it is of another network"),
        None,
    ]
    table = replies_table(Reply(2, f"client {i}", one) for i, one in enumerate(readings))
    assert table.splitlines()[2:] == [
        "| 2 | client 0 | 8 | 8 | 0: 5, 7: 3 | the whole batch |",
        "| 2 | client 1 |  | 2 | 1: 2 | 1 candidate without proof |",
        "| 2 | client 2 | 8 | 0 |  | it is of another network |",
        "| 2 | client 3 |  |  |  | an error, nothing else |",
    ]
