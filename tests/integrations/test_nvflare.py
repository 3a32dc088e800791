"""The NVFlare filter on NVFlare's own payloads."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

from integrations.small_clients import CLIENT, RECORDS, make_model, readable, trained


def test_without_nvflare_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvflare", "nvflare.apis.dxo"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "gradpeel.integrations.nvflare", raising=False)
    with pytest.raises(ImportError, match=r"expected NVFlare installed: .*\[nvflare\]"):
        importlib.import_module("gradpeel.integrations.nvflare")


class TestWithNVFlare:
    """A task comes, its weights are noted; a result is about to go, and is checked."""

    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("nvflare")

    def send(self, result: Any, *, task: Any = None, **settings: Any) -> Any:
        """What is left of a result after the filter, as NVFlare's client runner calls it."""
        from nvflare.apis.dxo import DXO, DataKind
        from nvflare.apis.filter import FilterChainType, FilterContextKey
        from nvflare.apis.fl_context import FLContext

        from gradpeel.integrations.nvflare import LeakageFilter

        given = {"client": CLIENT, "policy": "refuse"} | settings
        batch = given.pop("batch_fn", lambda _: (trained().x, trained().y))
        context = FLContext()
        if task is None:
            task = DXO(DataKind.WEIGHTS, data=as_arrays(trained().before)).to_shareable()
        for chain, payload in (
            (FilterChainType.TASK_DATA_CHAIN, task),
            (FilterChainType.TASK_RESULT_CHAIN, result),
        ):
            # Two objects of one class: NVFlare makes them from a configuration.
            filter_ = LeakageFilter(make_model, batch, **given)
            filter_.set_prop(FilterContextKey.CHAIN_TYPE, chain)
            left = filter_.process(payload, context)
        return left

    def result(self, kind: str = "WEIGHTS", data: Any = None, meta: Any = None) -> Any:
        from nvflare.apis.dxo import DXO

        data = as_arrays(trained().after) if data is None else data
        return DXO(kind, data=data, meta=meta).to_shareable()

    def difference(self, meta: Any = None) -> Any:
        old, new = as_arrays(trained().before), as_arrays(trained().after)
        return self.result("WEIGHT_DIFF", {name: new[name] - old[name] for name in old}, meta)

    def assert_blocked(self, result: Any, **settings: Any) -> None:
        from nvflare.apis.filter import ContentBlockedException

        with pytest.raises(ContentBlockedException, match="this client sends no update"):
            self.send(result, **settings)

    @pytest.mark.parametrize("kind", ["weights", "difference"])
    def test_it_refuses(self, kind: str) -> None:
        self.assert_blocked(self.result() if kind == "weights" else self.difference())

    @pytest.mark.parametrize("policy", ["log", "warn"])
    def test_it_sends_what_it_may(self, policy: str) -> None:
        from nvflare.apis.dxo import from_shareable

        left = from_shareable(self.send(self.result(), policy=policy))
        assert np.array_equal(left.data["0.weight"], trained().after["0.weight"].numpy())

    @pytest.mark.slow
    def test_it_guards(self) -> None:
        import torch
        from nvflare.apis.dxo import from_shareable

        left = from_shareable(self.send(self.difference({"steps": 1}), policy="guard"))
        changes = {name: torch.from_numpy(array) for name, array in left.data.items()}
        assert (left.data_kind, left.get_meta_prop("steps")) == ("WEIGHT_DIFF", 1)
        assert readable(trained().after) == RECORDS
        assert readable({name: trained().before[name] + changes[name] for name in changes}) == 0

    def test_what_it_does_not_understand_is_blocked(self) -> None:
        from nvflare.apis.dxo import DXO
        from nvflare.apis.shareable import Shareable

        plain = Shareable()
        plain["gradients"] = as_arrays(trained().after)
        inner = DXO("WEIGHTS", data=as_arrays(trained().after))
        other = self.result(data={**as_arrays(trained().after), "extra": np.ones(2)})
        for payload in (
            plain,
            self.result("METRICS", {"loss": 0.1}),
            self.result("COLLECTION", {"inside": inner}),
            self.result(data={}),
            self.result(data={"0.weight": "text"}),
            other,
        ):
            self.assert_blocked(payload, policy="log")

    def test_a_check_that_fails_sends_nothing(self) -> None:
        def broken(_: Any) -> Any:
            raise OSError("no data")

        self.assert_blocked(self.result(), policy="log", batch_fn=broken)
        self.assert_blocked(self.result(), policy=lambda _: "block")

    def test_a_task_without_weights_lets_nothing_leave(self) -> None:
        from nvflare.apis.shareable import Shareable

        self.assert_blocked(self.result(), task=Shareable(), policy="log")

    def test_an_error_brings_no_payload(self) -> None:
        from nvflare.apis.fl_constant import ReturnCode

        failed = self.result()
        failed.set_return_code(ReturnCode.EXECUTION_EXCEPTION)
        left = self.send(failed)
        assert left.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
        assert "DXO" not in left


def as_arrays(weights: Any) -> dict[str, Any]:
    """Copies of weights as NVFlare sends them."""
    return {name: tensor.numpy().copy() for name, tensor in weights.items()}
