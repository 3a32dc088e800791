"""The Flower mod and strategy on Flower's own messages, without a simulation."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from integrations.small_clients import CLIENT, RECORDS, make_model, readable, trained

ROOT = Path(__file__).resolve().parents[2]


def test_without_flower_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    monkeypatch.delitem(sys.modules, "gradpeel.integrations.flower", raising=False)
    with pytest.raises(ImportError, match=r"expected Flower installed: pip install .*\[flower\]"):
        importlib.import_module("gradpeel.integrations.flower")


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "flower.md").read_text(encoding="utf-8")
    shown = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "examples/flower").glob("*.*")]
    assert len(shown) >= 4
    assert [block for block in shown if not any(block in text for text in files)] == []


class TestWithFlower:
    """Messages as Flower makes them."""

    @pytest.fixture(autouse=True)
    def identity(self) -> None:
        """Messages carry the identity of the process, which Flower sets when it starts one."""
        pytest.importorskip("flwr")
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

    def message(self, kind: str = "train", weights: Any = None) -> Any:
        from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

        weights = trained().before if weights is None else weights
        records = {"arrays": ArrayRecord(weights), "config": ConfigRecord({"server-round": 1})}
        return Message(RecordDict(records), dst_node_id=7, message_type=kind)

    def reply(self, msg: Any, weights: Any = None, **more: Any) -> Any:
        from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

        weights = trained().after if weights is None else weights
        metrics = MetricRecord({"num-examples": RECORDS})
        records = {"weights": ArrayRecord(weights), "metrics": metrics, **more}
        return Message(RecordDict(records), reply_to=msg)

    def context(self, policy: str = "log") -> Any:
        from flwr.app import Context, RecordDict

        settings = {"leakage-policy": policy}
        return Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config=settings)

    def mod(self, **settings: Any) -> Any:
        from gradpeel.integrations.flower import leakage_mod

        given = {"client": CLIENT, "batch_fn": lambda _: load(), **settings}
        return leakage_mod(make_model, **given)

    def after(self, reply: Any) -> dict[str, torch.Tensor]:
        return dict(reply.content["weights"].to_torch_state_dict())

    def assert_withheld(self, reply: Any) -> None:
        from flwr.common.constant import ErrorCode

        assert not reply.has_content()
        assert reply.error.code == ErrorCode.MOD_FAILED_PRECONDITION
        # The server learns nothing about the data, and not even why.
        assert reply.error.reason == "gradpeel: this client sends no update"

    @pytest.mark.parametrize(("policy", "level"), [("log", "INFO"), ("warn", "WARNING")])
    def test_it_logs_or_warns(
        self, policy: str, level: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger="flwr.gradpeel")
        caplog.handler.setLevel(logging.INFO)
        logging.getLogger("flwr.gradpeel").addHandler(caplog.handler)
        reply = self.mod(policy=policy)(self.message(), self.context(), lambda m, _: self.reply(m))
        logging.getLogger("flwr.gradpeel").removeHandler(caplog.handler)
        assert self.after(reply)["0.bias"].equal(trained().after["0.bias"])
        assert "4 of 4 records can be read: max_readable=0 allows 0" in caplog.text
        assert {record.levelname for record in caplog.records} == {level}

    def test_it_refuses(self) -> None:
        send = self.mod(policy="refuse")
        self.assert_withheld(send(self.message(), self.context(), lambda m, _: self.reply(m)))

    @pytest.mark.slow
    def test_it_guards(self) -> None:
        send = self.mod(policy="guard")
        reply = send(self.message(), self.context(), lambda m, _: self.reply(m))
        assert list(self.after(reply)) == list(trained().after)
        assert reply.content["metrics"]["num-examples"] == RECORDS
        assert readable(trained().after) == RECORDS
        assert readable(self.after(reply)) == 0

    def test_the_policy_is_read_for_every_message(self) -> None:
        send = self.mod(policy=lambda context: context.run_config["leakage-policy"])
        sent = send(self.message(), self.context("log"), lambda m, _: self.reply(m))
        assert sent.has_content()
        self.assert_withheld(
            send(self.message(), self.context("refuse"), lambda m, _: self.reply(m))
        )
        self.assert_withheld(
            send(self.message(), self.context("refuze"), lambda m, _: self.reply(m))
        )

    def test_an_exception_in_the_check_sends_nothing(self) -> None:
        def broken(_: Any) -> Any:
            raise RuntimeError("the disk is full of " + str(load()))

        send = self.mod(batch_fn=broken)
        self.assert_withheld(send(self.message(), self.context(), lambda m, _: self.reply(m)))

    def test_what_it_does_not_understand_is_withheld(self) -> None:
        from flwr.app import ArrayRecord, Message, RecordDict

        send, context = self.mod(), self.context()
        weights, extra = trained().after, ArrayRecord({"state": torch.ones(2)})
        replies = [
            lambda m, _: self.reply(m, state=extra),
            lambda m, _: self.reply(m, weights | {"gradients": torch.ones(2)}),
            lambda m, _: self.reply(m, {"0.weight": weights["0.weight"]}),
            lambda m, _: Message(RecordDict({}), reply_to=m),
        ]
        for answer in replies:
            self.assert_withheld(send(self.message(), context, answer))

    def test_a_message_without_weights_starts_no_training(self) -> None:
        from flwr.app import Message, RecordDict

        empty = Message(RecordDict({}), dst_node_id=7, message_type="train")
        self.assert_withheld(self.mod()(empty, self.context(), lambda *_: pytest.fail("trained")))

    @pytest.mark.parametrize("kind", ["evaluate", "query"])
    def test_other_messages_pass(self, kind: str) -> None:
        send = self.mod(policy="refuse")
        assert send(self.message(kind), self.context(), lambda m, _: self.reply(m)).has_content()

    def test_training_under_another_name_is_checked(self) -> None:
        msg = self.message("train.personalised")
        self.assert_withheld(
            self.mod(policy="refuse")(msg, self.context(), lambda m, _: self.reply(m))
        )

    def test_training_may_use_up_what_came(self) -> None:
        def train(msg: Any, _: Any) -> Any:
            msg.content["arrays"].to_torch_state_dict(keep_input=False)
            return self.reply(msg)

        self.assert_withheld(self.mod(policy="refuse")(self.message(), self.context(), train))

    def test_an_error_of_the_client_passes(self) -> None:
        from flwr.app import Error, Message

        reply = self.mod()(
            self.message(), self.context(), lambda m, _: Message(Error(2, "mine"), reply_to=m)
        )
        assert reply.error.reason == "mine"

    def test_registered_first_it_sees_what_leaves(self) -> None:
        from flwr.app import ArrayRecord
        from flwr.clientapp import ClientApp

        def add_noise(msg: Any, context: Any, call_next: Any) -> Any:
            reply = call_next(msg, context)
            noisy = {name: w + 0.1 * torch.randn_like(w) for name, w in self.after(reply).items()}
            reply.content["weights"] = ArrayRecord(noisy)
            return reply

        app = ClientApp(mods=[self.mod(policy="refuse"), add_noise])
        app.train()(lambda m, _: self.reply(m))
        assert app(self.message(), self.context()).has_content()
        app = ClientApp(mods=[add_noise, self.mod(policy="refuse")])
        app.train()(lambda m, _: self.reply(m))
        with pytest.raises(ValueError, match="content is None"):
            app(self.message(), self.context())

    def test_settings_are_checked_when_it_is_made(self) -> None:
        import gradpeel as gp

        with pytest.raises(gp.InputError, match="policy='block': expected one of log"):
            self.mod(policy="block")
        with pytest.raises(gp.InputError, match="expected the learning rate"):
            self.mod(client=gp.Client())

    def test_the_strategy_reads_replies_and_changes_nothing(self) -> None:
        from flwr.app import ArrayRecord, ConfigRecord, Error, Message
        from flwr.serverapp.strategy import FedAvg

        from gradpeel.integrations.flower import AuditedStrategy

        class Grid:
            def get_node_ids(self) -> list[int]:
                return [7, 8]

        arrays, plain = ArrayRecord(trained().before), FedAvg(fraction_evaluate=0.0)
        strategy = AuditedStrategy(plain, make_model, client=CLIENT)
        sent = strategy.configure_train(1, arrays, ConfigRecord(), Grid())
        # FedAvg draws clients in any order.
        first, second = sorted(sent, key=lambda message: message.metadata.dst_node_id)
        good, error = self.reply(first), Message(Error(6, "no"), reply_to=second)
        kept: Any
        kept, metrics = strategy.aggregate_train(1, [good, error])
        alone, alike = plain.aggregate_train(1, [good])
        assert kept.to_torch_state_dict()["0.bias"].equal(alone.to_torch_state_dict()["0.bias"])
        assert metrics == alike
        read, nothing = strategy.replies
        assert read.reading is not None
        assert (read.client, read.reading.certified, read.reading.samples) == ("7", RECORDS, 4)
        assert (nothing.client, nothing.reading) == ("8", None)
        assert "| 1 | 7 | 4 | 4 |" in strategy.report()


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """The client's records."""
    return trained().x, trained().y
