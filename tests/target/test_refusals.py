"""Refusals: every network that cannot be handled, with every reason of every kind."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

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


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = dense()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.relu(self.one(x)) * mask


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


def frozen() -> nn.Module:
    model = nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 4))
    return model.requires_grad_(requires_grad=False)


class Uncopied(nn.ReLU):
    def __deepcopy__(self, memo: object) -> nn.Module:
        message = "no copies of this one"
        raise TypeError(message)


def dead_norm() -> nn.Module:
    norm = nn.BatchNorm1d(12).eval()
    nn.init.zeros_(norm.weight)
    return nn.Sequential(norm, dense(), nn.ReLU())


class Quantised(nn.Module):
    __module__ = "torch.ao.nn.quantized.modules.linear"

    def forward(self, x: Tensor) -> Tensor:
        return x


class Normalize(nn.Module):
    """Another thing of the name that torchvision's has."""

    mean = std = None

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(x)


def hooked() -> nn.Module:
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

# Every network with all the reasons it is refused for, in order.
REFUSED: dict[str, tuple[Callable[[], nn.Module], Reasons]] = {
    "no Linear": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()),
        [NEVER("no Linear layer found")],
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
        [NEVER("Linear '0' has no bias: without its gradient there is no ratio to take")],
    ),
    "GELU": (
        lambda: nn.Sequential(dense(), nn.GELU(), nn.Linear(8, 4)),
        [
            NEVER(
                "Linear '0' is followed by GELU '1', not by ReLU: "
                "every neuron fires on every sample"
            )
        ],
    ),
    "functional leaky ReLU": (
        lambda: Written(lambda n, x: n.two(functional.leaky_relu(n.one(x)))),
        [
            NEVER(
                "Linear 'one' is followed by leaky_relu, not by ReLU: "
                "every neuron fires on every sample"
            )
        ],
    ),
    "an activation that could do": (
        lambda: nn.Sequential(dense(), nn.ReLU6(), nn.Linear(8, 4)),
        [NOT_YET("Linear '0' is followed by ReLU6 '1', not by ReLU")],
    ),
    "clamp": (
        lambda: Written(lambda n, x: n.two(n.one(x).clamp(min=0))),
        [NOT_YET("Linear 'one' is followed by clamp, not by ReLU")],
    ),
    "no activation": (
        lambda: nn.Sequential(dense(), nn.Linear(8, 4)),
        [
            NEVER(
                "Linear '0' is followed by Linear '1', not by ReLU: "
                "without ReLU every neuron fires on every sample"
            )
        ],
    ),
    "one layer": (
        lambda: nn.Sequential(dense()),
        [
            NEVER(
                "Linear '0' is followed by the output, not by ReLU: "
                "without ReLU every neuron fires on every sample"
            )
        ],
    ),
    "convolution in front": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU()
        ),
        [NOT_YET("Conv2d '0', ReLU '1' in front of the target: gradpeel cannot undo it")],
    ),
    "a deep front": (
        lambda: nn.Sequential(
            nn.Embedding(9, 4), *[nn.LayerNorm(12) for _ in range(6)], dense(), nn.ReLU()
        ),
        [
            NOT_YET(
                "Embedding '0', LayerNorm '1', LayerNorm '2', LayerNorm '3' and 3 more "
                "in front of the target: gradpeel cannot undo it"
            )
        ],
    ),
    "another Linear in front": (
        lambda: nn.Sequential(dense(), nn.GELU(), nn.Linear(8, 8), nn.ReLU()),
        [NOT_YET("Linear '0', GELU '1' in front of the target: gradpeel cannot undo it")],
    ),
    "normalised by the sample itself": (
        lambda: Written(lambda n, x: n.two(n.one(x - x.mean(1, keepdim=True)).relu())),
        [NOT_YET("sub in front of the target: gradpeel cannot undo it")],
    ),
    "divided by the sample": (
        lambda: Written(lambda n, x: n.two(n.one(1 / x).relu())),
        [NOT_YET("truediv in front of the target: gradpeel cannot undo it")],
    ),
    "another Normalize": (
        lambda: nn.Sequential(Normalize(), dense(), nn.ReLU()),
        [NOT_YET("normalize in front of the target: gradpeel cannot undo it")],
    ),
    "samples laid out across one another": (
        lambda: Written(lambda n, x: n.two(n.one(x.view(4, -1)).relu())),
        [NOT_YET("view in front of the target: gradpeel cannot undo it")],
    ),
    "a feature erased": (
        dead_norm,
        [
            NEVER(
                "BatchNorm1d '0' in front of the target: "
                "scale holds zero or values that are not finite: it cannot be undone"
            )
        ],
    ),
    "a factor of zero": (
        lambda: Written(lambda n, x: n.two(n.one(x * 0).relu())),
        [
            NEVER(
                "mul in front of the target: "
                "scale holds zero or values that are not finite: it cannot be undone"
            )
        ],
    ),
    "active dropout": (
        lambda: nn.Sequential(
            nn.Dropout(), nn.Dropout(0.0), dense(), nn.Dropout(0.1), nn.ReLU(), nn.Dropout(0.2)
        ),
        [SETTING("Dropout '0', Dropout '3' are active: call model.eval()")],
    ),
    "active dropout before the activation": (
        lambda: nn.Sequential(
            dense(), nn.Dropout(), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)
        ),
        [SETTING("Dropout '1' is active: call model.eval()")],
    ),
    "active functional dropout": (
        lambda: Written(
            lambda n, x: functional.dropout(
                n.two(functional.dropout(n.one(functional.dropout(x))).relu())
            )
        ),
        [
            SETTING(
                "dropout is called with training=True: "
                "pass training=self.training and call model.eval()"
            )
        ],
    ),
    "dropout that does not name its arguments": (
        lambda: Written(lambda n, x: n.two(n.one(torch.dropout(x, 0.5, True)).relu())),
        [NOT_YET("dropout in front of the target: gradpeel cannot undo it")],
    ),
    "batch norm in training": (
        lambda: nn.Sequential(nn.BatchNorm1d(12), dense(), nn.ReLU(), nn.BatchNorm1d(8)),
        [
            SETTING(
                "BatchNorm1d '0' is in training mode, where it mixes the samples of a batch: "
                "call model.eval()"
            )
        ],
    ),
    "batch norm in training before the activation": (
        lambda: nn.Sequential(dense(), nn.BatchNorm1d(8), nn.ReLU()),
        [
            SETTING(
                "BatchNorm1d '1' is in training mode, where it mixes the samples of a batch: "
                "call model.eval()"
            ),
            NOT_YET("Linear '0' is followed by BatchNorm1d '1', not by ReLU"),
        ],
    ),
    "batch norm without statistics": (
        lambda: nn.Sequential(
            nn.BatchNorm1d(12, track_running_stats=False), dense(), nn.ReLU()
        ).eval(),
        [
            SETTING(
                "BatchNorm1d '0' is without running statistics, so it mixes a batch: "
                "use track_running_stats=True"
            )
        ],
    ),
    "functional batch norm in training": (
        lambda: Written(
            lambda n, x: n.two(n.one(functional.batch_norm(x, None, None, training=True)).relu())
        ),
        [
            SETTING(
                "batch_norm is called with training=True: "
                "pass training=self.training and call model.eval()"
            ),
            NOT_YET("batch_norm in front of the target: gradpeel cannot undo it"),
        ],
    ),
    "attention with dropout": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (3, 4)), nn.TransformerEncoderLayer(4, 2, 8), nn.Flatten(), dense()
        ),
        [
            SETTING(
                "MultiheadAttention '1.self_attn', Dropout '1.dropout', Dropout '1.dropout1', "
                "Dropout '1.dropout2' are active: call model.eval()"
            ),
            NEVER(
                "Linear '3' is followed by the output, not by ReLU: "
                "without ReLU every neuron fires on every sample"
            ),
            NOT_YET(
                "Unflatten '0', TransformerEncoderLayer '1' in front of the target: "
                "gradpeel cannot undo it"
            ),
        ],
    ),
    "noise that tracing would freeze": (
        lambda: Written(lambda n, x: n.two(n.one(x).relu() + torch.randn(8))),
        [NOT_YET("the model draws random numbers in its forward pass")],
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
            SETTING("'0.weight' has requires_grad=False, so no gradient: set it to True"),
            SETTING("'0.bias' has requires_grad=False, so no gradient: set it to True"),
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
            NEVER(
                "Linear '0' is followed by Tanh '1', not by ReLU: "
                "every neuron fires on every sample"
            ),
        ],
    ),
    "skip from the input": (
        lambda: Written(lambda n, x: n.two(n.one(x).relu()) + n.side(x), side=nn.Linear(12, 4)),
        [NOT_YET("Linear 'side' takes a value around the target (a skip connection)")],
    ),
    "skip from the pre-activations": (
        lambda: Written(lambda n, x: n.two((z := n.one(x)).relu() + z)),
        [NOT_YET("the output of Linear 'one' is used by relu, add: expected ReLU alone")],
    ),
    "skip of sizes": (
        lambda: Written(lambda n, x: n.two(n.one(x).relu()) / x.size(1)),
        [NOT_YET("size takes a value around the target (a skip connection)")],
    ),
    "two inputs": (
        TwoInputs,
        [
            NOT_YET("forward takes 2 inputs: x, mask"),
        ],
    ),
    "two outputs": (
        lambda: Written(lambda n, x: ((h := n.one(x).relu()), n.two(h))),
        [NOT_YET("the model returns a tuple: expected one tensor")],
    ),
    "two outputs of one step": (
        lambda: Written(lambda n, x: n.two(n.one(x).relu()).max(1)),
        [NOT_YET("the model returns a max: expected one tensor")],
    ),
    "no classes": (
        lambda: Written(lambda n, x: n.two(n.one(x).relu()).sum(1)),
        [NOT_YET("4 samples give the output (4,) of torch.float32: expected (4, classes)")],
    ),
    "a tail that does not fit": (
        lambda: then(nn.Linear(9, 4)),
        [
            NOT_YET(
                "the network after the target fails: "
                + words(lambda: nn.Linear(9, 4)(torch.zeros(4, 8)))
            )
        ],
    ),
    "a branch on values": (
        lambda: Written(branching),
        [
            NOT_YET(
                "the model cannot be traced: "
                + words(lambda: fx.Tracer().trace(Written(branching)))
            )
        ],
    ),
    "a result that is dropped": (
        lambda: Written(dropped_result),
        [NOT_YET("relu_ overwrites its input and its result is not used: use what it returns")],
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
        [
            NOT_YET("Quantised '0' is quantised"),
            NOT_YET("Quantised '0' in front of the target: gradpeel cannot undo it"),
        ],
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
        [NOT_YET("4 samples give the output (4, 0) of torch.float32: expected (4, classes)")],
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
            SETTING("Dropout '0' is active: call model.eval()"),
            SETTING(
                "BatchNorm1d '1' is in training mode, where it mixes the samples of a batch: "
                "call model.eval()"
            ),
            NEVER("Linear '3' has no bias: without its gradient there is no ratio to take"),
            SETTING("'3.weight' has requires_grad=False, so no gradient: set it to True"),
            NEVER(
                "Linear '3' is followed by Sigmoid '4', not by ReLU: "
                "every neuron fires on every sample"
            ),
            NOT_YET("LayerNorm '2' in front of the target: gradpeel cannot undo it"),
        ],
    ),
}


@pytest.mark.parametrize(("make", "reasons"), REFUSED.values(), ids=REFUSED)
def test_a_network_is_refused_with_every_reason(
    make: Callable[[], nn.Module], reasons: Reasons
) -> None:
    with pytest.raises(ModelRefusedError) as caught:
        split(make())
    assert [(type(r), str(r)) for r in caught.value.reasons] == [(type(r), str(r)) for r in reasons]


def test_what_the_forward_pass_does_not_use_may_hold_anything() -> None:
    model = spoilt("3.running_mean")
    assert split(model.train()).neurons == 8  # batch norm goes by the batch
    unused = Written(lambda n, x: n.two(n.one(x).relu()), spare=dense())
    nn.init.constant_(unused.get_parameter("spare.weight"), torch.nan)
    assert split(unused).neurons == 8
    assert split(masked(-torch.inf)).neurons == 8  # a mask may well be made of it
