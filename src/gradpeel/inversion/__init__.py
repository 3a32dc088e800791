"""From certified features back to inputs: reconstructions, and tokens by search.

`gradpeel.invert` reconstructs the inputs behind features that an update gave away;
`gradpeel.leaked_tokens` lists the tokens that the gradients of embeddings name.
"""

from gradpeel.inversion.inversion import Inversion
from gradpeel.inversion.inverting import invert
from gradpeel.inversion.leaking import leaked_tokens

__all__ = ["Inversion", "invert", "leaked_tokens"]
