"""Decoding an update without ground truth: residual, candidates, certificate, the peeling loop."""

from gradpeel.decoder.cascade import Peeling, peel
from gradpeel.decoder.recovery import BatchSize, Recovery, Round, Stage
from gradpeel.decoder.unproven import Unproven

__all__ = ["BatchSize", "Peeling", "Recovery", "Round", "Stage", "Unproven", "peel"]
