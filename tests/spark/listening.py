"""Where processes listen, told by the operating system."""

from contextlib import suppress

import psutil


def addresses() -> set[str]:
    """Where this process and those that it started listen."""
    me = psutil.Process()
    found = set()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # one that has ended meanwhile
            found |= {
                c.laddr.ip for c in process.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN
            }
    return found
