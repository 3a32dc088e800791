"""Refusals: every network that cannot be handled, with every reason of every kind."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from gradpeel.errors import (
    ImpossibleModelError,
    ModelError,
    ModelRefusedError,
    ModelSettingError,
    UnsupportedModelError,
)
from gradpeel.target import split
from gradpeel.target.tracing import shorten


class Written(nn.Module):
    """A network of two layers, `one` and `two`, written as a function of them."""

    def __init__(self, written: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.written = written
        for name, layer in {"one": dense(), "two": nn.Linear(8, 4), **layers}.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.written(self, x)


def dense(features: int = 12, neurons: int = 8) -> nn.Linear:
    return nn.Linear(features, neurons)


def branching(self: Any, x: Tensor) -> Tensor:
    hidden = self.one(x).relu()
    return self.two(hidden if hidden.sum() > 0 else -hidden)  # type: ignore[no-any-return]


def words(call: Callable[[], object]) -> str:
    """What torch says to this, whatever its release."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 -- torch's own, of any class
        return shorten(error)
    pytest.fail("torch did not refuse it")


def quietly(make: Callable[[], nn.Module]) -> nn.Module:
    """Make a module that torch warns of, in words and classes that change between releases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


class Named(NamedTuple):
    hidden: Tensor
    logits: Tensor


class ByHand(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return functional.linear(input, self.weight.abs(), self.bias)


def tied() -> nn.Module:
    model = nn.Sequential(dense(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    return model


HOSTILE = 'a") if open(str(1 / 0)) else getattr(self, "one'


def with_parameter(name: str) -> nn.Module:
    model = nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 4))
    model.register_parameter(name, nn.Parameter(torch.ones(1)))
    return model


def spoilt(*names: str | float) -> nn.Module:
    """A network with a value that is not finite in each of some tensors; NaN by default."""
    layers = [dense(), nn.ReLU(), nn.Linear(8, 4), nn.BatchNorm1d(4)]
    model = nn.Sequential(*layers).eval()
    value = next((name for name in names if isinstance(name, float)), torch.nan)
    with torch.no_grad():
        for name in names:
            if isinstance(name, str):
                model.state_dict()[name].view(-1)[0] = value
    return model


def masked(value: float) -> nn.Module:
    model = Written(lambda n, x: n.two(torch.relu(n.one(x)) + n.mask))
    model.register_buffer("mask", torch.tensor([value] + 7 * [0.0]))
    return model


def zeroed(norm: nn.BatchNorm1d) -> nn.Module:
    nn.init.zeros_(norm.weight)
    return norm


def frozen() -> nn.Module:
    model = nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 4))
    return model.requires_grad_(requires_grad=False)


class Uncopied(nn.ReLU):
    def __deepcopy__(self, memo: object) -> nn.Module:
        message = "no copies of this one"
        raise TypeError(message)


class Quantised(nn.Module):
    __module__ = "torch.ao.nn.quantized.modules.linear"

    def forward(self, x: Tensor) -> Tensor:
        return x


def hooked() -> nn.Sequential:
    model = nn.Sequential(dense(), nn.ReLU())
    model[0].register_forward_hook(lambda *call: call[2] + 1)
    return model


def aliased(self: Any, x: Tensor) -> Tensor:
    hidden = kept = self.one(self.norm(x).flatten(1)).relu()
    hidden += 1
    return self.two(hidden + kept)  # type: ignore[no-any-return]


def dropped_result(self: Any, x: Tensor) -> Tensor:
    hidden = self.one(x)
    functional.relu_(hidden)
    return self.two(hidden)  # type: ignore[no-any-return]


def then(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(dense(), nn.ReLU(), *modules)


NEVER, NOT_YET, SETTING = ImpossibleModelError, UnsupportedModelError, ModelSettingError
Reasons = list[ModelError]
WITHOUT_BIAS = (
    "has no bias, whose gradient gives the scale of a sample; of a batch of one, any neuron's "
    "weight gradient shows the sample up to its scale"
)
EVERYWHERE = (
    "every neuron fires on every sample, so that no cascade can start; a batch of one is read at "
    "once, by dividing any neuron's weight gradient by its bias gradient, unless the layer acts on "
    "every token of a sequence"
)
TWO_SLOPES = EVERYWHERE.replace(
    "no cascade can start", "peeling cannot start, and the row cascade is not made for two slopes"
)
MIXES = (
    "and it uses the statistics of the batch: its gradient subtracts the mean of the batch, so "
    "that every sample takes part in every neuron and the bias gradient is zero; evaluation mode, "
    "where it only scales, can be audited"
)
OTHER = "choose another layer, if there is one"
BY_NAME = "name the layer to read ('one', 'two'), and it is read without what follows it"
FROZEN = "has requires_grad=False, so no gradient: set it to True if the client trains it"

# Every network with all the reasons it is refused for, in order.
REFUSED: dict[str, tuple[Callable[[], nn.Module], Reasons]] = {
    "no Linear": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()),
        [
            NEVER(
                "no Linear layer found: the gradients of other layers have to be read in other ways"
            )
        ],
    ),
    "a product by hand": (
        lambda: nn.Sequential(ByHand(12, 8), nn.ReLU()),
        [
            NOT_YET(
                "linear is not called as a torch.nn.Linear layer of the model, "
                "and gradpeel reads no other"
            )
        ],
    ),
    "no bias": (
        lambda: nn.Sequential(nn.Linear(12, 8, bias=False), nn.ReLU()),
        [NEVER(f"Linear '0' {WITHOUT_BIAS}")],
    ),
    "GELU": (
        lambda: nn.Sequential(dense(), nn.GELU(), nn.Linear(8, 4)),
        [NEVER(f"Linear '0' is followed by GELU '1', not by ReLU: {EVERYWHERE}")],
    ),
    "functional leaky ReLU": (
        lambda: Written(lambda n, x: n.two(functional.leaky_relu(n.one(x)))),
        [NOT_YET(f"Linear 'one' is followed by leaky_relu, not by ReLU: {TWO_SLOPES}")],
    ),
    "no activation": (
        lambda: nn.Sequential(dense(), nn.Linear(8, 4)),
        [NEVER(f"Linear '0' is followed by Linear '1', not by ReLU: {EVERYWHERE}")],
    ),
    "one layer": (
        lambda: nn.Sequential(dense()),
        [NEVER(f"Linear '0' is followed by the output, not by ReLU: {EVERYWHERE}")],
    ),
    "active dropout": (
        lambda: nn.Sequential(
            nn.Dropout(), nn.Dropout(0.0), dense(), nn.Dropout(0.1), nn.ReLU(), nn.Dropout(0.2)
        ),
        [
            SETTING(
                "Dropout '3' is active, between Linear '2' and its activation: call model.eval()"
            )
        ],
    ),
    "active functional dropout": (
        lambda: Written(
            lambda n, x: functional.dropout(
                n.two(functional.dropout(n.one(functional.dropout(x))).relu())
            )
        ),
        [
            SETTING(
                "dropout is called with training=True, between Linear 'one' and its activation: "
                "pass training=self.training and call model.eval()"
            )
        ],
    ),
    "batch norm in training before the activation": (
        lambda: nn.Sequential(dense(), nn.BatchNorm1d(8), nn.ReLU()),
        [NEVER(f"Linear '0' is followed by BatchNorm1d '1', not by ReLU, {MIXES}")],
    ),
    "batch norm without statistics of its own": (
        lambda: nn.Sequential(
            dense(), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU()
        ).eval(),
        [NEVER(f"Linear '0' is followed by BatchNorm1d '1', not by ReLU, {MIXES}")],
    ),
    "batch norm that erases": (
        lambda: nn.Sequential(dense(), zeroed(nn.BatchNorm1d(8)), nn.ReLU()).eval(),
        [NOT_YET(f"Linear '0' is followed by BatchNorm1d '1', not by ReLU: {OTHER}")],
    ),
    "a clamp from above": (
        lambda: Written(lambda n, x: n.two(n.one(x).clamp(max=1))),
        [NOT_YET(f"Linear 'one' is followed by clamp, not by ReLU: {OTHER}")],
    ),
    "a clamp by what the network computes": (
        lambda: Written(lambda n, x: n.two(n.one(x).clamp(x.sum(), 1))),
        [NOT_YET(f"Linear 'one' is followed by clamp, not by ReLU: {OTHER}")],
    ),
    "two sides that are silent": (
        lambda: nn.Sequential(dense(), nn.Hardshrink(), nn.Linear(8, 4)),
        [NOT_YET(f"Linear '0' is followed by Hardshrink '1', not by ReLU: {OTHER}")],
    ),
    "no bias behind a norm without one": (
        lambda: nn.Sequential(
            nn.Linear(12, 8, bias=False), nn.BatchNorm1d(8, affine=False), nn.ReLU()
        ).eval(),
        [NEVER(f"Linear '0' {WITHOUT_BIAS}")],
    ),
    "noise that tracing would freeze": (
        lambda: Written(lambda n, x: n.two(n.one(x).relu() + torch.randn(8))),
        [NOT_YET(f"the model draws random numbers in its forward pass; {BY_NAME}")],
    ),
    "called twice": (
        lambda: Written(lambda n, x: n.one(n.one(x).relu()), one=dense(8, 8)),
        [NEVER("Linear 'one' is called 2 times: its gradient adds up all calls")],
    ),
    "tied weights": (
        tied,
        [NEVER("Linear '0' shares its parameters with Linear '2': its gradient adds up all uses")],
    ),
    "weights used by hand again": (
        lambda: Written(lambda n, x: n.one(x).relu() @ n.one.weight),
        [
            NEVER(
                "Linear 'one' shares its parameters with 'one.weight': "
                "its gradient adds up all uses"
            )
        ],
    ),
    "frozen": (
        frozen,
        [
            SETTING(f"'0.weight' {FROZEN}"),
            SETTING(f"'0.bias' {FROZEN}"),
        ],
    ),
    "weight norm": (
        lambda: nn.Sequential(parametrizations.weight_norm(dense()), nn.ReLU()),
        [
            NOT_YET(
                "Linear '0' computes its weight from other parameters "
                "(weight_norm, spectral_norm or another parametrisation)"
            )
        ],
    ),
    "not to be copied": (
        lambda: nn.Sequential(dense(), Uncopied()),
        [NOT_YET("the model cannot be copied: no copies of this one")],
    ),
    "lazy": (
        lambda: quietly(
            lambda: nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyBatchNorm1d().eval())
        ),
        [
            SETTING(
                "LazyLinear '0', LazyBatchNorm1d '2' are without weights yet: "
                "load them, or run the model once on a batch"
            )
        ],
    ),
    "on the meta device": (
        lambda: nn.Sequential(dense(), nn.ReLU()).to("meta"),
        [SETTING("Linear '0' is without weights yet: load them, or run the model once on a batch")],
    ),
    "wrapped": (
        lambda: nn.DataParallel(nn.Sequential(dense(), nn.ReLU(), nn.Dropout())),
        [
            SETTING("the model is wrapped in DataParallel: pass model.module"),
        ],
    ),
    "complex": (
        lambda: nn.Sequential(nn.Linear(3, 4, dtype=torch.complex64), nn.Tanh()),
        [
            NOT_YET("parameter '0.weight' is complex"),
            NEVER(f"Linear '0' is followed by Tanh '1', not by ReLU: {EVERYWHERE}"),
        ],
    ),
    "skip from the pre-activations": (
        lambda: Written(lambda n, x: n.two((z := n.one(x)).relu() + z)),
        [NOT_YET(f"the output of Linear 'one' is used by relu, add, not by ReLU alone: {OTHER}")],
    ),
    "GELU behind a Linear that cannot be read either": (
        lambda: Written(
            lambda n, x: n.two(functional.gelu(n.inner((z := n.one(x)) + z.sin()))),
            inner=dense(8),
        ),
        [
            NOT_YET(f"the output of Linear 'one' is used by sin, add, not by ReLU alone: {OTHER}"),
            NEVER(f"Linear 'inner' is followed by gelu, not by ReLU: {EVERYWHERE}"),
        ],
    ),
    "two outputs": (
        lambda: Written(lambda n, x: ((h := n.one(x).relu()), n.two(h))),
        [NOT_YET("the model returns a tuple: expected one tensor")],
    ),
    "a tuple with names": (
        lambda: Written(lambda n, x: Named(hidden := n.one(x).relu(), n.two(hidden))),
        [
            NOT_YET("the model returns a Named: expected one tensor"),
        ],
    ),
    "two outputs of one step": (
        lambda: Written(lambda n, x: n.two(n.one(x).relu()).max(1)),
        [NOT_YET("the model returns a max: expected one tensor")],
    ),
    "a branch on values": (
        lambda: Written(branching),
        [
            NOT_YET(
                "the model cannot be traced: "
                + words(lambda: fx.Tracer().trace(Written(branching)))
                + f"; {BY_NAME}"
            )
        ],
    ),
    "a result that is dropped": (
        lambda: Written(dropped_result),
        [NOT_YET("relu_ overwrites its input and its result is not used: use what it returns")],
    ),
    "a hook behind a front that cannot be undone": (
        lambda: nn.Sequential(nn.Tanh(), *hooked()),
        [NOT_YET("Linear '1' has a forward hook: remove it")],
    ),
    "two layers, each with a reason of its own": (
        lambda: nn.Sequential(
            nn.Linear(12, 8, bias=False), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(), nn.ReLU()
        ),
        [
            NEVER(f"Linear '0' {WITHOUT_BIAS}"),
            SETTING(
                "Dropout '3' is active, between Linear '2' and its activation: call model.eval()"
            ),
        ],
    ),
    "a hook that changes a value": (
        hooked,
        [NOT_YET("the steps recorded do not reproduce the model's output")],
    ),
    "an alias overwritten": (
        lambda: Written(aliased, norm=nn.BatchNorm2d(3)).eval(),
        [NOT_YET("the steps recorded do not reproduce the model's output")],
    ),
    "quantised": (
        lambda: nn.Sequential(Quantised(), dense(), nn.ReLU()),
        [NOT_YET("Quantised '0' is quantised")],
    ),
    "a name that would be run as code": (
        lambda: nn.Sequential(
            OrderedDict([("one", dense()), ("relu", nn.ReLU()), (HOSTILE, nn.Linear(8, 4))])
        ),
        [NOT_YET(f"{HOSTILE!r} cannot be written in a line of code, as torch.fx does: rename it")],
    ),
    "a parameter with such a name": (
        lambda: with_parameter("x\n"),
        [NOT_YET("'x\\n' cannot be written in a line of code, as torch.fx does: rename it")],
    ),
    "a keyword for a name": (
        lambda: Written(lambda n, x: n.two(n.one(x).relu()), **{"lambda": dense()}),
        [NOT_YET("'lambda' cannot be written in a line of code, as torch.fx does: rename it")],
    ),
    "NaN in the target": (
        lambda: spoilt("0.weight"),
        [SETTING("'0.weight': 1 of 96 values are not finite: load weights that are")],
    ),
    "infinity in the tail": (
        lambda: spoilt("2.bias", torch.inf),
        [SETTING("'2.bias': 1 of 4 values are not finite: load weights that are")],
    ),
    "NaN everywhere": (
        lambda: spoilt("0.weight", "0.bias", "2.weight"),
        [
            SETTING(
                "'0.weight': 1 of 96 values are not finite (and those of 2 more): "
                "load weights that are"
            )
        ],
    ),
    "NaN in what batch norm counted": (
        lambda: spoilt("3.running_var"),
        [SETTING("'3.running_var': 1 of 4 values are not finite: load weights that are")],
    ),
    "infinity in what batch norm counted": (
        lambda: spoilt("3.running_mean", torch.inf),
        [SETTING("'3.running_mean': 1 of 4 values are not finite: load weights that are")],
    ),
    "NaN in a mask": (
        lambda: masked(torch.nan),
        [SETTING("'mask': 1 of 8 values are not finite: load weights that are")],
    ),
    "parameters of eight bits": (
        lambda: nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 4)).to(torch.float8_e5m2),
        [
            NOT_YET("parameter '0.weight' is of torch.float8_e5m2"),
        ],
    ),
    "an output without columns": (
        lambda: quietly(lambda: nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 0))),
        [
            NOT_YET(
                "behind Linear '0', 4 samples give the output (4, 0) of torch.float32: "
                "expected (4, classes)"
            )
        ],
    ),
    "no neurons": (
        lambda: quietly(lambda: nn.Sequential(dense(12, 0), nn.ReLU(), nn.Linear(0, 4))),
        [NEVER("Linear '0' has 12 inputs and 0 outputs: there is nothing to read")],
    ),
    "no features": (
        lambda: quietly(lambda: nn.Sequential(dense(0), nn.ReLU(), nn.Linear(8, 4))),
        [NEVER("Linear '0' has 0 inputs and 8 outputs: there is nothing to read")],
    ),
    "compiled": (
        lambda: quietly(lambda: torch.jit.script(nn.Sequential(dense(), nn.ReLU()))),
        [NOT_YET("the model is compiled by torch.jit")],
    ),
    "only its shape counts": (
        lambda: Written(
            lambda n, x: n.two.weight[:1].repeat_interleave(n.one(x).relu().size(0), dim=0)
        ),
        [NEVER("the output depends on Linear 'one' only by its shape: it has no gradient")],
    ),
    "everything at once": (
        lambda: nn.Sequential(
            nn.Dropout(),
            nn.BatchNorm1d(12),
            nn.LayerNorm(12),
            nn.Linear(12, 8, bias=False).requires_grad_(requires_grad=False),
            nn.Sigmoid(),
            nn.Dropout(),
        ),
        [
            NEVER(f"Linear '3' {WITHOUT_BIAS}"),
            SETTING(f"'3.weight' {FROZEN}"),
            NEVER(f"Linear '3' is followed by Sigmoid '4', not by ReLU: {EVERYWHERE}"),
        ],
    ),
}


@pytest.mark.parametrize(("make", "reasons"), REFUSED.values(), ids=REFUSED)
def test_a_network_is_refused_with_every_reason(
    make: Callable[[], nn.Module], reasons: Reasons
) -> None:
    with pytest.raises(ModelRefusedError) as caught:
        split(make())
    assert [(r.kind, str(r)) for r in caught.value.reasons] == [(r.kind, str(r)) for r in reasons]


def test_a_refusal_does_not_sound_like_safety() -> None:
    with pytest.raises(ModelRefusedError) as caught:
        split(nn.Sequential(dense(), nn.GELU(), nn.Linear(8, 4)))
    message = str(caught.value)
    assert message.startswith(
        "the model cannot be audited: [this attack does not apply] Linear '0'"
    )
    assert message.endswith("(this says nothing about other attacks)")
    for reason in caught.value.reasons:
        assert "never" not in reason.kind


def test_a_batch_of_one_is_read_behind_any_activation_as_the_message_says() -> None:
    for activation in (nn.GELU(), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.Identity()):
        model = nn.Sequential(dense(), activation, nn.Linear(8, 4)).double()
        with pytest.raises(ModelRefusedError, match="a batch of one is read at once"):
            split(model)
        x = torch.rand(1, 12, generator=torch.Generator().manual_seed(0)).double()
        loss = functional.cross_entropy(model(x), torch.tensor([1]))
        weight, bias = torch.autograd.grad(loss, [*model[0].parameters()])
        torch.testing.assert_close(weight / bias[:, None], x.expand(8, 12))


def test_what_the_forward_pass_does_not_use_may_hold_anything() -> None:
    model = spoilt("3.running_mean")
    assert split(model.train()).neurons == 8  # batch norm goes by the batch
    unused = Written(lambda n, x: n.two(n.one(x).relu()), spare=dense())
    nn.init.constant_(unused.get_parameter("spare.weight"), torch.nan)
    assert split(unused).neurons == 8
    assert split(masked(-torch.inf)).neurons == 8  # a mask may well be made of it
