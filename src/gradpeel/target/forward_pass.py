"""A network's forward pass as a graph: the questions that splitting it at the target asks.

Which steps lead from the input to the output, what is a step, who works on its result, and what is
left of the network after it. `gradpeel.target.tracing.trace` makes one from a model.

Example:
    >>> root = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> steps = ForwardPass(root, fx.Tracer().trace(root))
    >>> [steps.describe(node) for node in steps.live if node.op == "call_module"]
    ["Flatten '0'", "Linear '1'", "ReLU '2'", "Linear '3'"]
"""

from __future__ import annotations

import contextlib
import inspect
import operator
from collections.abc import Collection, Iterable
from typing import Any, TypeGuard

import torch
from torch import Tensor, fx, nn

from gradpeel.inputs import Entry

__all__ = ["BATCH_NORMS", "DROPOUTS", "ForwardPass", "bias_of", "is_linear"]

DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_PASSING_METHODS = {"clone", "contiguous", "double", "float", "to"}


class ForwardPass:
    """The forward pass of a model as a graph of nodes.

    Attributes:
        root: the traced model.
        module: the same as a graph module; its parameters have the model's names.
        parameter_names: the model's name of each parameter, by the parameter's id.
        output: the node that returns.
        live: the nodes the output needs, in the order they run.
        unused: the others.
        inputs: the arguments of `forward` that the output needs.
        varying: nodes whose value depends on an input; the others are constants.
        trained: ids of the parameters that have a gradient.
    """

    def __init__(self, root: nn.Module, graph: fx.Graph, whole: Collection[nn.Module] = ()) -> None:
        """Read a graph.

        Args:
            root: the traced model.
            graph: its forward pass.
            whole: modules whose own steps are not known.
        """
        self.root = root
        self._whole = set(whole)
        self.module = fx.GraphModule(root, graph)
        self.parameter_names = {id(p): name for name, p in root.named_parameters()}
        self.trained = {id(p) for p in root.parameters() if p.requires_grad}
        nodes = list(self.module.graph.nodes)
        self.output = nodes[-1]
        self._needed = _ancestors(self.output)
        self.live = [node for node in nodes if node in self._needed]
        self.unused = [node for node in nodes if node not in self._needed]
        self.inputs = [node for node in self.live if node.op == "placeholder"]
        self.varying: set[fx.Node] = set()
        for node in nodes:
            if node.op == "placeholder" or any(n in self.varying for n in node.all_input_nodes):
                self.varying.add(node)

    def layer(self, node: fx.Node) -> nn.Module | None:
        """The module a node calls, if it calls one."""
        return self.module.get_submodule(str(node.target)) if node.op == "call_module" else None

    def operation(self, node: fx.Node) -> str:
        """What a node does, in one word: a class, a function's name or a method's."""
        layer = self.layer(node)
        if layer is not None:
            return type(layer).__name__
        return str(getattr(node.target, "__name__", node.target))

    def describe(self, node: fx.Node) -> str:
        """A node in the words of a message: "Conv2d 'features.0'", "gelu"."""
        if node.op in ("placeholder", "output"):
            return f"the {node.target}" if node.op == "output" else f"input '{node.target}'"
        return self.operation(node) + (f" '{node.target}'" if node.op == "call_module" else "")

    def arguments(self, node: fx.Node) -> dict[str, Any]:
        """A call's arguments by name, defaults included, where the function has named ones."""
        if node.op == "call_function" and callable(node.target):
            with contextlib.suppress(TypeError, ValueError):
                bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
                bound.apply_defaults()
                return bound.arguments
        return dict(node.kwargs)

    def constant(self, argument: object) -> Tensor | None:
        """The value of an argument that does not depend on the input, float64; None if it does."""
        if isinstance(argument, fx.Node) and argument not in self.varying:
            interpreter = fx.Interpreter(self.module)
            sources = _ancestors(argument)
            for node in self.live:
                if node in sources:
                    interpreter.env[node] = interpreter.run_node(node)
            argument = interpreter.env[argument]
        if isinstance(argument, bool) or not isinstance(argument, int | float | Tensor):
            return None
        return torch.as_tensor(argument).detach().to(torch.float64)

    def consumers(self, node: fx.Node, *, of_rows: bool = False) -> list[fx.Node]:
        """The live nodes that work on a node's values, looking through those that pass them on.

        Args:
            node: whose values.
            of_rows: the values are rows already, (n, width), so that flattening passes them on too.
        """
        found: list[fx.Node] = []
        for user in node.users:
            if user in self._needed and not self._asks_batch_size(user):
                passed = self.passes_on(user) or (of_rows and self.flattens(user))
                found += self.consumers(user, of_rows=of_rows) if passed else [user]
        return found

    def is_inside(self, name: str) -> bool:
        """Whether a module stands inside another one that is called as one step."""
        called = [str(node.target) for node in self.live if node.op == "call_module"]
        return any(name.startswith(f"{outer}.") for outer in called)

    def uses(self, parameter: Tensor) -> list[fx.Node]:
        """The live nodes that compute with a parameter."""
        return [node for node in self.live if any(parameter is p for p in self._parameters(node))]

    def is_relu(self, node: fx.Node) -> bool:
        """Whether a node is ReLU, in any way it can be written."""
        layer = self.layer(node)
        return isinstance(layer, nn.ReLU) or (
            layer is None and self.operation(node) in {"relu", "relu_"}
        )

    def passes_on(self, node: fx.Node) -> bool:
        """Whether a node hands its input on; so does dropout, and `unsteady` says if it is active.

        A function that does not name its arguments (torch.dropout) might be active for all we know.
        """
        if isinstance(self.layer(node), (nn.Identity, *DROPOUTS)):
            return True
        if node.op == "call_method":
            return node.target in _PASSING_METHODS
        return "dropout" in self.operation(node) and "training" in self.arguments(node)

    def flattens(self, node: fx.Node) -> bool:
        """Whether a node lays each sample out as one row."""
        layer = self.layer(node)
        if layer is not None:
            return isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1)
        sizes = [*node.args[1:], *node.kwargs.values()]
        if self.operation(node) == "flatten":
            return sizes in ([1], [1, -1])
        if self.operation(node) not in {"view", "reshape"}:
            return False
        if len(sizes) == 1 and isinstance(sizes[0], list | tuple):
            sizes = list(sizes[0])
        # With the batch size first, two sizes leave only one way to lay out the rest.
        rows = sizes[0] if len(sizes) == 2 else None
        if isinstance(rows, fx.Node):
            return _batch_size_of(rows) is not None
        return isinstance(rows, int) and rows == -1

    def works_in_place(self, node: fx.Node) -> bool:
        """Whether a node may overwrite the tensor it is given."""
        layer = self.layer(node)
        if layer is not None:
            return layer in self._whole or bool(getattr(layer, "inplace", False))
        name = self.operation(node)
        by_name = name.endswith("_") and not name.endswith("__")
        return by_name or bool(self.arguments(node).get("inplace", False))

    def nodes_before(self, node: fx.Node) -> list[fx.Node]:
        """The nodes that what enters `node` is computed from and that depend on the input."""
        found = (_ancestors(node) - {node}) & self.varying
        return [one for one in self.live if one in found]

    def entry(self, node: fx.Node) -> Entry | None:
        """The only input that `node` is computed from, in a forward pass of several; else None."""
        given = [one for one in self.module.graph.nodes if one.op == "placeholder"]
        if len(given) < 2:
            return None
        before = _ancestors(node)
        places = [(place, str(one.target)) for place, one in enumerate(given) if one in before]
        return places[0] if len(places) == 1 else None

    def inputs_after(self, entry: fx.Node) -> list[fx.Node]:
        """The inputs that lead to the output without passing `entry`."""
        return [node for node in self.nodes_after(entry) if node.op == "placeholder"]

    def trained_before(self, node: fx.Node) -> tuple[str, ...]:
        """Names of the parameters with a gradient that what enters `node` is computed with."""
        found = [p for one in _ancestors(node) - {node} for p in self._parameters(one)]
        trained = {id(p) for p in found} & self.trained
        return tuple(name for key, name in self.parameter_names.items() if key in trained)

    def nodes_after(self, entry: fx.Node) -> list[fx.Node]:
        """The nodes that lead from `entry`, or around it, to the output.

        Using the batch size from before the entry is not a way around: the entry has it as well.
        """
        before = _ancestors(entry) & self.varying
        found: set[fx.Node] = set()
        stack = [self.output]
        while stack:
            node = stack.pop()
            asks = _batch_size_of(node) in before
            if node not in found and (asks or node not in before):
                found.add(node)
                stack += [] if asks else node.all_input_nodes
        return [node for node in self.live if node in found]

    def ways_around(self, entry: fx.Node) -> list[fx.Node]:
        """The nodes after `entry` that work on a value from before it."""
        before = (_ancestors(entry) - {entry}) & self.varying
        return [
            node
            for node in self.nodes_after(entry)
            if _batch_size_of(node) is None
            and any(n in before and _batch_size_of(n) is None for n in node.all_input_nodes)
        ]

    def module_after(self, entry: fx.Node) -> nn.Module:
        """The part of the network after `entry` as a module on its value, (n, width)."""
        if self.output.args[0] is entry:
            return nn.Identity()
        nodes = self.nodes_after(entry)
        before = _ancestors(entry)
        graph = fx.Graph()
        start = graph.placeholder("rows")
        if any(self.works_in_place(node) for node in nodes):
            start = graph.call_method("clone", (start,))  # the caller's rows stay as they are
        copies = {entry: start}
        for node in nodes:
            if _batch_size_of(node) in before:
                copies[node] = graph.call_method("size", (start, 0))
            else:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return fx.GraphModule(self.module, graph, class_name="Rest")

    def _parameters(self, node: fx.Node) -> Iterable[Tensor]:
        layer = self.layer(node)
        if layer is not None:
            return layer.parameters()
        if node.op == "get_attr":
            return [operator.attrgetter(str(node.target))(self.module)]
        return []

    def _asks_batch_size(self, node: fx.Node) -> bool:
        """Whether nothing but the batch size comes out of a node."""
        users = [user for user in node.users if user in self._needed]
        return _batch_size_of(node) is not None or (
            _shape_of(node) is not None and all(_batch_size_of(user) is not None for user in users)
        )


def is_linear(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Whether a module computes x W^T + b as torch's Linear does, and nothing more."""
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward


def bias_of(linear: nn.Linear) -> nn.Parameter | None:
    """The bias of a Linear, if it has one."""
    bias: nn.Parameter | None = getattr(linear, "bias", None)
    return bias


def _ancestors(node: fx.Node) -> set[fx.Node]:
    """A node and all it is computed from."""
    found: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            stack += current.all_input_nodes
    return found


def _batch_size_of(node: fx.Node) -> fx.Node | None:
    """The tensor whose batch size a node asks for: x.size(0), x.shape[0], len(x)."""
    if node.op == "call_function" and node.target is len:
        return node.all_input_nodes[0]
    if node.op == "call_function" and node.target is operator.getitem and node.args[1] == 0:
        source = node.args[0]
        return _shape_of(source) if isinstance(source, fx.Node) else None
    asked = [*node.args[1:], *node.kwargs.values()]
    if node.op == "call_method" and node.target == "size" and asked == [0]:
        return node.all_input_nodes[0]
    return None


def _shape_of(node: fx.Node) -> fx.Node | None:
    """The tensor whose whole shape a node asks for: x.shape, x.size()."""
    by_attribute = node.op == "call_function" and node.target is getattr and node.args[1] == "shape"
    by_method = node.op == "call_method" and node.target == "size" and len(node.args) == 1
    return node.all_input_nodes[0] if by_attribute or (by_method and not node.kwargs) else None
