"""A check's result as SARIF 2.1.0, which code hosts show beside the code.

A result names the layer whose gradient gives the records away; where the network comes from a file,
that file is its place.
"""

from __future__ import annotations

from pathlib import PurePath

from gradpeel._version import __version__
from gradpeel.checking.batches import Checks
from gradpeel.checking.budget import Budget, Risk

__all__ = ["RULES", "to_sarif"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RULES = {Risk.RECONSTRUCTION: "GP001", Risk.MEMBERSHIP: "GP002"}
_SAID = {
    Risk.RECONSTRUCTION: "Records of a batch can be read from its update (data reconstruction).",
    Risk.MEMBERSHIP: "An update shows that records took part (membership inference).",
}
_NAMES = {Risk.RECONSTRUCTION: "DataReconstruction", Risk.MEMBERSHIP: "MembershipInference"}


def to_sarif(
    checks: Checks | None, budget: Budget, *, place: PurePath, error: str | None = None
) -> dict[str, object]:
    """The log of one run.

    Args:
        checks: what was found; None if nothing could be checked.
        budget: what was allowed.
        place: the file that the network comes from, relative to the root of the repository.
        error: why nothing could be checked.

    Example:
        >>> log = to_sarif(None, Budget(), place=PurePath("model.py"), error="no Linear layer")
        >>> log["runs"][0]["invocations"][0]["executionSuccessful"]
        False
    """
    results = [
        _result(number, each.layer, finding.risk, finding.sentence, place, is_open=finding.is_open)
        for number, each in enumerate(checks or (), start=1)
        for finding in each.findings(budget)
    ]
    told = [] if error is None else [{"level": "error", "message": {"text": error}}]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "gradpeel",
                        "semanticVersion": __version__,
                        "rules": [
                            {
                                "id": RULES[risk],
                                "name": _NAMES[risk],
                                "shortDescription": {"text": _SAID[risk]},
                                "properties": {"tags": ["privacy", str(risk), "NIST AI 100-2"]},
                            }
                            for risk in RULES
                        ],
                    }
                },
                "invocations": [
                    {"executionSuccessful": error is None, "toolExecutionNotifications": told}
                ],
                "results": results,
            }
        ],
    }


def _result(
    batch: int, layer: str, risk: Risk, sentence: str, place: PurePath, *, is_open: bool
) -> dict[str, object]:
    where = {
        "physicalLocation": {
            "artifactLocation": {"uri": place.as_posix()},
            "region": {"startLine": 1},
        },
        "logicalLocations": [{"name": layer, "kind": "member"}],
    }
    return {
        "ruleId": RULES[risk],
        "ruleIndex": list(RULES).index(risk),
        "kind": "open" if is_open else "fail",
        "level": "none" if is_open else "error",
        "message": {"text": f"batch {batch}, layer {layer}: {sentence}"},
        "locations": [where],
    }
