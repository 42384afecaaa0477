"""What happens to queries when a program ends; ``test_interrupt.py`` has one on Spark."""

import subprocess
import sys
import time

PROGRAM = """
import time
from midstream.spark import exit_hook

class Query:
    def __init__(self, name, seconds):
        self.name, self.seconds = name, seconds

    def stop_at_exit(self):
        time.sleep(self.seconds)
        print(self.name, "stopped", flush=True)
        raise ConnectionError("the JVM is gone")

exit_hook._PATIENCE_SECONDS = {patience}
queries = [Query("first", {seconds}), Query("second", {seconds})]
for query in queries:
    exit_hook.stop_at_exit(query)
ended = Query("ended", 0)
exit_hook.stop_at_exit(ended)
del ended
print("end", flush=True)
"""


def run_program(seconds: float, patience: float) -> list[str]:
    """What a program says that ends with two queries that take some time to stop."""
    program = PROGRAM.format(seconds=seconds, patience=patience)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_all_that_run_are_stopped_though_one_fails():
    end, *stopped = run_program(seconds=0.05, patience=30)
    assert end == "end"
    assert sorted(stopped) == ["first stopped", "second stopped"]


def test_one_that_does_not_stop_is_left():
    begin = time.monotonic()
    assert run_program(seconds=600, patience=0.1) == ["end"]
    assert time.monotonic() - begin < 60
