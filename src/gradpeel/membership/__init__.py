"""Membership: which of these records took part in a training round?"""

from gradpeel.membership.contains import Membership, Verdict, contains

__all__ = ["Membership", "Verdict", "contains"]
