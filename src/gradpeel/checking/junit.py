"""A check's result as JUnit XML, which servers of continuous integration show as tests."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from gradpeel.checking.batches import Checks
from gradpeel.checking.budget import Budget, Risk

__all__ = ["to_junit"]


def to_junit(checks: Checks | None, budget: Budget, *, error: str | None = None) -> bytes:
    """One test for each batch and each risk that the budget limits.

    Args:
        checks: what was found; None if nothing could be checked.
        budget: what was allowed.
        error: why nothing could be checked.

    Example:
        >>> b'errors="1"' in to_junit(None, Budget(), error="no Linear layer")
        True
    """
    suite = ET.Element("testsuite", name="gradpeel check")
    counts = dict.fromkeys(("tests", "failures", "errors"), 0)
    if error is not None:
        counts["tests"] = counts["errors"] = 1
        case = ET.SubElement(suite, "testcase", classname="gradpeel", name="check", time="0")
        ET.SubElement(case, "error", type="could not be checked", message=_printable(error))
    risks = [Risk.RECONSTRUCTION]
    if budget.max_members is not None:
        risks.append(Risk.MEMBERSHIP)
    for number, each in enumerate(checks or (), start=1):
        found = {finding.risk: finding for finding in each.findings(budget)}
        for risk in risks:
            counts["tests"] += 1
            seconds = f"{each.seconds if risk is risks[0] else 0:.3f}"
            name = f"batch {number}: {risk}"
            case = ET.SubElement(suite, "testcase", classname="gradpeel", name=name, time=seconds)
            if risk not in found:
                continue
            # What was left open is no failure of the model, but no success either.
            kind = "error" if found[risk].is_open else "failure"
            counts[f"{kind}s"] += 1
            ET.SubElement(case, kind, type=str(risk), message=found[risk].sentence)
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    suites = ET.Element("testsuites")
    suites.append(suite)
    return bytes(ET.tostring(suites, encoding="utf-8", xml_declaration=True))


def _printable(text: str) -> str:
    """Messages may quote names out of files, and XML has no control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
