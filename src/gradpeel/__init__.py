"""gradpeel: what does a gradient give away?

In federated learning a client sends a gradient and keeps its data. gradpeel shows which of its
samples a server can read from one gradient, and certifies each one without looking at the data.

    import gradpeel as gp

    gp.audit(model, x, y)        simulate a training round on your data, decode it, score it
    gp.audit_many(model, x, y)   the same again and again, with the spread
    gp.peel(model, update)       decode an update, without any ground truth
    gp.contains(model, update, records)    which of these records took part
    gp.invert(model, recovery, sample_shape=...)    inputs from recovered features
    gp.guard(model, x, y)        an update of which our decoder reads nothing
    gp.what_stops(audit)         the weakest defence that ends recovery
    gp.check(model, x, y)        the client's own check, before its update leaves
    gp.tampering(model, x)       was the received layer tampered with?
    gp.exposure(model, x)        what peeling would read, in one forward pass
    gp.report(audit)             one page to read, to save, to mail

For auditing systems that you own or are permitted to test.
"""

from typing import TYPE_CHECKING

from gradpeel._late import load_late
from gradpeel._version import __version__
from gradpeel.errors import GradpeelError, InputError, ModelError, ModelRefusedError

if TYPE_CHECKING:
    from gradpeel import defences, designs
    from gradpeel.aggregation import Aggregation, aggregate
    from gradpeel.attacker import Attacker
    from gradpeel.audit import Audit, audit
    from gradpeel.audits import Audits, TrainingCurve
    from gradpeel.checking import (
        Budget,
        Check,
        Checks,
        Predictor,
        Tampering,
        Verdict,
        check,
        check_batches,
        tampering,
    )
    from gradpeel.client import Client, local_update
    from gradpeel.decoder import Peeling, Recovery, Round, peel
    from gradpeel.exposure import Exposure, exposure
    from gradpeel.guarding import Guarded, guard
    from gradpeel.inversion import Inversion, invert, leaked_tokens
    from gradpeel.losses import BinaryCrossEntropy, CrossEntropy, Loss, MeanSquaredError
    from gradpeel.membership import Membership, contains
    from gradpeel.noise import with_noise
    from gradpeel.repeats import audit_checkpoints, audit_many
    from gradpeel.reporting.page import Report, report
    from gradpeel.stopping import Stopping, what_stops
    from gradpeel.target import Normalise, Target, split
    from gradpeel.training import LocalTraining
    from gradpeel.update import Update, load_update, save_update
else:
    load_late(
        __name__,
        {
            "gradpeel.defences": ("defences",),
            "gradpeel.designs": ("designs",),
            "gradpeel.aggregation": ("Aggregation", "aggregate"),
            "gradpeel.attacker": ("Attacker",),
            "gradpeel.audit": ("Audit", "audit"),
            "gradpeel.audits": ("Audits", "TrainingCurve"),
            "gradpeel.checking": (
                "Budget",
                "Check",
                "Checks",
                "Predictor",
                "Tampering",
                "Verdict",
                "check",
                "check_batches",
                "tampering",
            ),
            "gradpeel.client": ("Client", "local_update"),
            "gradpeel.decoder": ("Peeling", "Recovery", "Round", "peel"),
            "gradpeel.exposure": ("Exposure", "exposure"),
            "gradpeel.guarding": ("Guarded", "guard"),
            "gradpeel.inversion": ("Inversion", "invert", "leaked_tokens"),
            "gradpeel.losses": ("BinaryCrossEntropy", "CrossEntropy", "Loss", "MeanSquaredError"),
            "gradpeel.membership": ("Membership", "contains"),
            "gradpeel.noise": ("with_noise",),
            "gradpeel.repeats": ("audit_checkpoints", "audit_many"),
            "gradpeel.reporting.page": ("Report", "report"),
            "gradpeel.stopping": ("Stopping", "what_stops"),
            "gradpeel.target": ("Normalise", "Target", "split"),
            "gradpeel.training": ("LocalTraining",),
            "gradpeel.update": ("Update", "load_update", "save_update"),
        },
    )

__all__ = [
    "Aggregation",
    "Attacker",
    "Audit",
    "Audits",
    "BinaryCrossEntropy",
    "Budget",
    "Check",
    "Checks",
    "Client",
    "CrossEntropy",
    "Exposure",
    "GradpeelError",
    "Guarded",
    "InputError",
    "Inversion",
    "LocalTraining",
    "Loss",
    "MeanSquaredError",
    "Membership",
    "ModelError",
    "ModelRefusedError",
    "Normalise",
    "Peeling",
    "Predictor",
    "Recovery",
    "Report",
    "Round",
    "Stopping",
    "Tampering",
    "Target",
    "TrainingCurve",
    "Update",
    "Verdict",
    "__version__",
    "aggregate",
    "audit",
    "audit_checkpoints",
    "audit_many",
    "check",
    "check_batches",
    "contains",
    "defences",
    "designs",
    "exposure",
    "guard",
    "invert",
    "leaked_tokens",
    "load_update",
    "local_update",
    "peel",
    "report",
    "save_update",
    "split",
    "tampering",
    "what_stops",
    "with_noise",
]
