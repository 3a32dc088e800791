"""What `gradpeel audit` runs: one audit, variations of it, repeats, or the checkpoints of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gradpeel.cli.progress import Watcher, watch, watch_audits
from gradpeel.cli.variations import Variation, compare, variations

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpeel.attacker import Attacker
    from gradpeel.audit import Audit
    from gradpeel.audits import Audits, TrainingCurve
    from gradpeel.cli.loss_options import LossOptions
    from gradpeel.cli.network_options import NetworkOptions
    from gradpeel.client import Client
    from gradpeel.datasets import Batch, Dataset
    from gradpeel.designs.options import DesignOptions
    from gradpeel.inversion import Inversion
    from gradpeel.stopping import Stopping

__all__ = ["AuditRun"]


@dataclass(frozen=True, eq=False)
class AuditRun:
    """Everything that an audit on the command line is made of.

    Attributes:
        dataset: where batches come from.
        network: where the network comes from.
        designs: how the server sets the target.
        losses: what the client minimises.
        client: how it trains.
        attacker: what the server knows; its design is that of the first batch.
        clients: whose updates are added up.
        batch_size: samples of each client.
        shuffle: draw batches at random, by the seed.
        seed: of everything random.
        device: where the decoder computes.
        quiet: show no progress.
    """

    dataset: Dataset
    network: NetworkOptions
    designs: DesignOptions
    losses: LossOptions
    client: Client
    attacker: Attacker
    clients: int
    batch_size: int
    shuffle: bool
    seed: int
    device: str
    quiet: bool

    def single(self, *, compared: bool | None) -> tuple[Audit, dict[str, Audit | None]]:
        """One audit, and the same with one thing changed, by the name of the change.

        Args:
            compared: whether to make changes; None for as many as are quick. Those that were not
                finished are None.
        """
        from gradpeel.repeats import make_network  # noqa: PLC0415 - torch is slow to import

        with watch(self.clients * self.batch_size, quiet=self.quiet) as watcher:
            network = make_network(self._make(), self.seed)
            result = self._audit(network, self._draw(self.batch_size), self.client, watcher)
        dtype = str(result.update.dtype).removeprefix("torch.")
        most = len(self.dataset.x_train) // self.clients
        changed = variations(dtype, self.client.noise, self.batch_size, most=most)
        run = partial(self._changed, network)
        return result, compare(changed, run, asked=compared, took=result.seconds)

    def what_stops(self, result: Audit) -> Stopping:
        """Try defences on an audit, for a limited time."""
        from gradpeel.stopping import TIMES, what_stops  # noqa: PLC0415

        most = min(len(self.dataset.x_train) // self.clients, max(TIMES) * self.batch_size)
        batch = self._draw(most)
        more = batch.x.to(result.x.dtype), self._targets(batch)
        with watch(None, quiet=self.quiet, title="defences"):
            return what_stops(result, more=more)

    def check_can_invert(self) -> None:
        """Make sure that inputs can be reconstructed, before an audit takes its time.

        Raises:
            ModelRefusedError: the network has no target, or gives an input other features each
                time.
            InputError: its features do not lead back to inputs.
        """
        import torch  # noqa: PLC0415

        from gradpeel.inversion import invert  # noqa: PLC0415
        from gradpeel.repeats import make_network  # noqa: PLC0415
        from gradpeel.target import split  # noqa: PLC0415

        network = make_network(self._make(), self.seed)
        target = split(network, layer=self.attacker.layer, share=True)
        # Recovered samples may be inputs already.
        if target.front.space == "features":
            shape = self._draw(self.batch_size).x.shape[1:]
            nothing = torch.zeros(0, target.features)
            invert(network, nothing, sample_shape=shape, layer=target.layer)

    def invert(self, result: Audit, *, data_range: tuple[float, float] | None) -> Inversion:
        """Reconstruct inputs from the feature vectors of an audit."""
        with watch(len(result.truth), quiet=self.quiet) as watcher:
            return result.invert(data_range=data_range, on_progress=watcher.on_inputs)

    def repeated(self, repeats: int) -> Audits | TrainingCurve:
        """Several audits on batches of their own, or those of the checkpoints of a run."""
        from gradpeel.aggregation import Aggregation  # noqa: PLC0415
        from gradpeel.datasets import draw_batch  # noqa: PLC0415
        from gradpeel.repeats import (  # noqa: PLC0415
            audit_checkpoints,
            audit_many,
            make_network,
        )

        is_drawn = repeats > 1
        pool = (
            draw_batch(self.dataset, len(self.dataset.x_train))
            if is_drawn
            else self._draw(self.batch_size)
        )
        states = self.network.states()
        with watch_audits(repeats * max(1, len(states)), quiet=self.quiet) as on_audit:
            made = self._make()
            if self.network.checkpoints is None:
                audits: Callable[..., Audits | TrainingCurve] = partial(audit_many, made)
            else:
                base = make_network(made, self.seed)
                audits = partial(audit_checkpoints, base, states)
            return audits(
                pool.x,
                self._targets(pool),
                repeats=repeats,
                batch_size=self.clients * self.batch_size if is_drawn else None,
                client=self.client,
                attacker=self.attacker,
                aggregation=Aggregation(self.clients),
                seed=self.seed,
                device=self.device,
                on_audit=on_audit,
            )

    def _make(self) -> nn.Module | Callable[[], nn.Module]:
        return self.network.make(self.dataset, np.random.default_rng([self.seed, 0]))

    def _draw(self, batch_size: int) -> Batch:
        from gradpeel.datasets import draw_batch  # noqa: PLC0415

        return draw_batch(
            self.dataset,
            self.clients * batch_size,
            shuffle=self.shuffle,
            rng=np.random.default_rng([self.seed, 1]),
        )

    def _targets(self, batch: Batch) -> Tensor:
        return self.losses.targets(batch.y, self.dataset.classes)

    def _audit(self, network: nn.Module, batch: Batch, client: Client, watcher: Watcher) -> Audit:
        from gradpeel.aggregation import Aggregation  # noqa: PLC0415
        from gradpeel.audit import audit  # noqa: PLC0415

        design = self.designs.build(
            batch.auxiliary, keep=self.network.is_own, on_search=watcher.on_search
        )
        return audit(
            network,
            batch.x,
            self._targets(batch),
            client=client,
            attacker=replace(self.attacker, design=design),
            aggregation=Aggregation(self.clients),
            seed=self.seed,
            device=self.device,
            on_round=watcher.on_round,
            on_rows=watcher.on_rows,
        )

    def _changed(
        self, network: nn.Module, other: Variation, go_on: Callable[[object], None]
    ) -> Audit:
        """The audit with one thing changed."""
        import torch  # noqa: PLC0415

        client = replace(self.client, dtype=getattr(torch, other.dtype), noise=other.noise)
        size = self.clients * other.batch_size
        with watch(size, quiet=self.quiet, title=other.name) as watcher:
            batch = self._draw(other.batch_size)
            return self._audit(network, batch, client, watcher.then(go_on))
