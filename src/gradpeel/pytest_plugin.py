"""A fixture for tests of one's own: fail if the updates of a model give away more than a budget.

pytest loads this module by itself where gradpeel is installed; torch is imported when a test asks
for the fixture, not before.

    def test_a_gradient_gives_away_at_most_a_twentieth(leakage):
        leakage(make_model(), x, y, max_readable=0.05)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import nn

    from gradpeel.checking import Check
    from gradpeel.coercion import Samples, Targets

__all__ = ["Leakage", "leakage"]


class Leakage:
    """Checks an update, and fails the test if it gives away more than a budget allows."""

    def __call__(
        self,
        model: nn.Module,
        x: Samples,
        y: Targets = None,
        *,
        max_readable: float = 0.0,
        max_members: float | None = None,
        **settings: Any,  # noqa: ANN401 - those of `gradpeel.check`
    ) -> Check:
        """Check one update.

        A model that is refused, or a question that is left open, fails the test too.

        Args:
            model: the network as the client receives it.
            x: the client's batch.
            y: labels or targets.
            max_readable: largest share of its records that may be readable.
            max_members: largest share of its records that may be shown to have taken part.
            **settings: those of `gradpeel.check`, such as `client` and `update`.

        Returns:
            The check, for further questions.
        """
        __tracebackhide__ = True
        from gradpeel.checking import Budget, check  # noqa: PLC0415 - torch is slow to import
        from gradpeel.errors import ModelRefusedError  # noqa: PLC0415

        budget = Budget(max_readable, max_members)
        settings.setdefault("members", max_members is not None)
        try:
            found = check(model, x, y, **settings)
        except ModelRefusedError as error:
            pytest.fail(f"leakage could not be checked: {error}", pytrace=False)
        if breaches := found.breaches(budget):
            pytest.fail("; ".join(breaches), pytrace=False)
        return found


@pytest.fixture(scope="session")
def leakage() -> Leakage:
    """Fail a test if an update gives away more than a budget: `leakage(model, x, y)`."""
    return Leakage()
