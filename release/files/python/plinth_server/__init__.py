"""A Kubernetes API server for tests, with the program that it is: PlinthServer starts one.

The fixture plinth_server of pytest is in plinth_server.pytest_plugin, which pytest finds by itself.
"""

import os
import sys
from pathlib import Path


def program():
    """The path of the program plinth that is in this package."""
    return str(Path(__file__).parent / "bin" / ("plinth.exe" if sys.platform == "win32" else "plinth"))


os.environ.setdefault("PLINTH", program())  # for PlinthServer; another program that is named there wins

from .server import PlinthServer  # noqa: E402

__all__ = ["PlinthServer", "program"]
