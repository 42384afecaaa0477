"""Messages of tasks and of the driver reach the tasks that they are addressed to."""

import pytest

from midstream.spark import shuffle as module
from midstream.spark.messages import SlicesMessage
from midstream.spark.shuffle import shuffle

pytestmark = pytest.mark.spark

TASKS = 3


@pytest.mark.parametrize("task_bytes", [10_000, 600, 1])
def test_every_message_reaches_its_task_once(spark, monkeypatch, task_bytes):
    """From each source, and however many tasks the messages of the driver are sent by."""
    monkeypatch.setattr(module, "_DRIVER_TASK_BYTES", task_bytes)
    sent = [(number % TASKS, SlicesMessage(number, bytes(number))) for number in range(20)]
    from_driver = [(number % TASKS, SlicesMessage(100 + number, bytes(50))) for number in range(12)]
    sources = [spark.sparkContext.parallelize(part, 2) for part in (sent[:13], sent[13:])]
    received = shuffle(sources, TASKS, from_driver).glom().collect()
    assert [{task for task, _ in messages} for messages in received] == [{0}, {1}, {2}]
    assert sorted(one for messages in received for one in messages) == sorted([*sent, *from_driver])
