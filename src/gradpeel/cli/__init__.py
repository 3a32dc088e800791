"""The command line: `gradpeel demo`, `audit`, `check`, `peel`, `sweep` and `paper`.

One file holds one command. Files and options are checked before anything is computed, errors that
the user can correct are reported in one line with exit code 2, and a directory of results appears
completely or not at all.
"""

from gradpeel.cli.app import app as main

__all__ = ["main"]
