"""Decoding an update without ground truth: residual, candidates, certificate, the peeling loop."""

from gradpeel.decoder.peeling import Peeling, peel
from gradpeel.decoder.recovery import Recovery, Round

__all__ = ["Peeling", "Recovery", "Round", "peel"]
