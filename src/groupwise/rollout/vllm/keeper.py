"""Keeps one server, and ends all of its processes when nobody needs it any more. Standard library only.

    python keeper.py COMMAND...      ends when its standard input does, or when the command ends

The server gets a process group of its own; this process holds a pipe that the system closes however the trainer ends.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE_S = 10.0
"""Seconds in which a server may end after SIGTERM."""


def keep(command: list[str]) -> int:
    """Run a command until it ends or the standard input does; returns its exit code."""
    child = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    ended = threading.Event()

    def wait_for_end_of_input() -> None:
        with suppress(OSError):
            while os.read(sys.stdin.fileno(), 4096):
                pass
        ended.set()

    def wait_for_child() -> None:
        child.wait()
        ended.set()

    for wait in (wait_for_end_of_input, wait_for_child):
        threading.Thread(target=wait, daemon=True).start()
    ended.wait()  # then every process of the group ends: politely, and what is left of it by force
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return child.returncode or 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        # the trainer decides, which gets the terminal's signals too; SIG_IGN would be inherited by the server
        signal.signal(number, lambda *_: None)
    sys.exit(keep(sys.argv[1:]))
