"""The command plinth: the program of this package."""

import os
import subprocess
import sys

from . import program


def main():
    command = [program(), *sys.argv[1:]]
    if sys.platform == "win32":  # which has no exec that keeps the process
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
