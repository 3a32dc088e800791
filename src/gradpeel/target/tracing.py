"""Record a model's forward pass without data, by torch.fx.

The model is copied first and stays as it is. A part of it that a graph cannot show faithfully (it
branches on values, draws random numbers) is kept whole, as one step that is run as it is. A model
that does so itself, outside of its parts, is refused here, before anybody relies on it.

Example:
    >>> steps = trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    >>> [steps.operation(node) for node in steps.live]
    ['input', 'Linear', 'ReLU', 'Linear', 'output']
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from gradpeel.errors import UnsupportedModelError
from gradpeel.target.forward_pass import ForwardPass, is_linear
from gradpeel.target.front_reading import normalisation_of

__all__ = ["UnseenModelError", "copied", "shorten", "trace"]


_ENCODERS = (nn.TransformerEncoder, nn.TransformerEncoderLayer)
"""Modules of torch's own that are looked into, since they hold layers with ReLU."""

_NAMED = 4


class UnseenModelError(UnsupportedModelError):
    """A forward pass that cannot be recorded; a layer of it can be read by name.

    Args:
        what: the reason, in a phrase.
        model: names the layers that there are.
    """

    def __init__(self, what: str, model: nn.Module) -> None:
        self.what = what
        linears = [f"'{name}'" for name, module in model.named_modules() if is_linear(module)]
        more = ", ..." if len(linears) > _NAMED else ""
        listed = f" ({', '.join(linears[:_NAMED])}{more})" if linears else ""
        super().__init__(
            f"{what}; name the layer to read{listed}, and it is read without what follows it"
        )


def trace(model: nn.Module, *, share: bool = False) -> ForwardPass:
    """Record the forward pass of a copy of `model`, in the mode (training or evaluation) it is in.

    Args:
        model: any module.
        share: let the copy use the values of the model's own parameters.

    Raises:
        UnsupportedModelError: the model cannot be copied or traced, or its forward pass does
            something that a graph of its steps does not show.
    """
    root = copied(model, share=share)
    # Random numbers drawn while tracing would stand in the graph as if they were constants.
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        graph, whole = _record(root)
        if not torch.equal(before, torch.get_rng_state()):
            raise UnseenModelError("the model draws random numbers in its forward pass", root)
    steps = ForwardPass(root, graph, whole)
    for node in steps.unused:
        if steps.works_in_place(node):
            raise UnsupportedModelError(
                f"{steps.describe(node)} overwrites its input and its result is not used: "
                "use what it returns"
            )
    return steps


def copied(model: nn.Module, *, share: bool) -> nn.Module:
    """A copy of a model without gradients, which may use the values of the model's parameters.

    Raises:
        UnsupportedModelError: the model cannot be copied.
    """
    try:
        root = copy.deepcopy(model, _in_place_of_copies(model) if share else {})
    except Exception as error:
        raise UnsupportedModelError(f"the model cannot be copied: {shorten(error)}") from error
    root.zero_grad(set_to_none=True)
    return root


def _record(root: nn.Module) -> tuple[fx.Graph, set[nn.Module]]:
    """Trace a model; parts of it that cannot be traced are kept whole and returned too."""
    before, whole = torch.get_rng_state(), set[nn.Module]()
    while True:
        tracer = _Tracer(root, whole)
        try:
            with _recording_len(root), _without_fast_path():
                return tracer.trace(root), whole
        except Exception as error:
            if tracer.failed is None:
                message = f"the model cannot be traced: {shorten(error)}"
                raise UnseenModelError(message, root) from error
        torch.set_rng_state(before)
        whole.add(tracer.failed)


def _in_place_of_copies(model: nn.Module) -> dict[int, nn.Parameter]:
    """For `deepcopy`: parameters of their own that hold the values of the model's."""
    return {
        id(parameter): nn.Parameter(parameter.detach(), parameter.requires_grad)
        for parameter in model.parameters()
    }


def shorten(error: Exception, limit: int = 200) -> str:
    """The first line of an error's message, cut to a length that fits into ours."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= limit else line[: limit - 3] + "..."


class _Tracer(fx.Tracer):
    """Keeps whole what gradpeel knows as one step, and gives optional arguments their default.

    Attributes:
        failed: the innermost module of the model that could not be traced, if there was one.
    """

    def __init__(self, root: nn.Module, whole: set[nn.Module]) -> None:
        super().__init__()
        self.failed: nn.Module | None = None
        self._known = whole | {
            module
            for module in root.modules()
            if is_linear(module) or normalisation_of(module) is not None
        }

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if type(m) in _ENCODERS and m not in self._known:
            return False
        return m in self._known or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401
        before, message = torch.get_rng_state(), "the model draws random numbers"
        others = [*args[1:], *kwargs.values()]
        if type(m) is nn.TransformerEncoder and all(other is None for other in others):
            forward = partial(_encode, m)
        try:
            result = super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed = self.failed or m
            raise
        # What it drew would stand in the graph as if it were a constant.
        if not torch.equal(before, torch.get_rng_state()):
            self.failed = m
            raise UnsupportedModelError(message)
        return result

    def create_proxy(
        self,
        kind: str,
        target: Any,  # noqa: ANN401 - torch's own signature
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *others: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        given = any(node.op == "placeholder" for node in self.graph.nodes)
        if kind == "placeholder" and args and given:
            return args[0]
        return super().create_proxy(kind, target, args, kwargs, *others, **named)


def _encode(encoder: nn.TransformerEncoder, src: Any, **_: None) -> Any:  # noqa: ANN401 - a proxy
    """What a transformer's encoder does without masks; its own code branches on the input."""
    for layer in encoder.layers:
        src = layer(src)
    return src if encoder.norm is None else encoder.norm(src)


@contextlib.contextmanager
def _without_fast_path() -> Iterator[None]:
    """Keep torch's attention from asking for a shortcut, about which a proxy knows nothing."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextlib.contextmanager
def _recording_len(root: nn.Module) -> Iterator[None]:
    """Let len(x) be traced: Python wants a number from it, and a proxy has none to give.

    While tracing, `len` is shadowed in the modules that define the model's forward passes.
    """

    def recording(value: Any) -> Any:  # noqa: ANN401 - whatever len() is called on
        if isinstance(value, fx.Proxy):
            return value.tracer.create_proxy("call_function", len, (value,), {})
        return len(value)

    spaces: dict[int, dict[str, Any]] = {}
    for module in root.modules():
        space = getattr(type(module).forward, "__globals__", None)
        if space is not None and "len" not in space:
            spaces[id(space)] = space
    for space in spaces.values():
        space["len"] = recording
    try:
        yield
    finally:
        for space in spaces.values():
            del space["len"]
