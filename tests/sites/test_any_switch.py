"""Hypothesis chooses what happens to the sites: whatever it is, all ends well once messages get through."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from midstream.plan.sited_plan import JoinSequence
from tests.sites.schedule import EPOCHS, Schedule, draw_case


class AnySwitch(RuleBasedStateMachine):
    """The schedule, with each step chosen; what it finds shrinks to few steps."""

    @initialize(number=st.integers(0, 500))
    def begin(self, number):
        self.schedule = Schedule(draw_case(Random(number)), Random(0))
        self.heads = [*self.schedule.case.rows]
        self.sites = [*self.schedule.machines]
        for stream in self.heads:
            for _ in range(EPOCHS):
                self.schedule.arrive(stream)

    @precondition(lambda self: self.schedule.network)
    @rule(data=st.data(), how=st.sampled_from(["deliver", "repeat", "lose"]))
    def message(self, data, how):
        position = data.draw(st.integers(0, len(self.schedule.network) - 1))
        getattr(self.schedule, how)(position)

    @rule(data=st.data(), count=st.integers(1, 20))
    def messages(self, data, count):
        """Some of those to one site arrive, in the order in which they were sent."""
        site = data.draw(st.sampled_from(self.sites))
        for _ in range(count):
            positions = [i for i, one in enumerate(self.schedule.network) if one.target == site]
            if positions:
                self.schedule.deliver(positions[0])

    @rule(data=st.data(), epochs=st.integers(1, 3))
    def run(self, data, epochs):
        site = data.draw(st.sampled_from(self.sites))
        for _ in range(epochs):
            self.schedule.run(site)

    @rule(data=st.data())
    def resend(self, data):
        self.schedule.resend(data.draw(st.sampled_from(self.sites)))

    @rule(data=st.data(), come_back=st.booleans())
    def crash(self, data, come_back):
        site = data.draw(st.sampled_from(self.sites))
        self.schedule.crash(site, 1)
        if come_back:
            del self.schedule.down[site]

    @rule(data=st.data())
    def switch(self, data):
        head = data.draw(st.sampled_from(self.heads))
        order = data.draw(st.permutations([name for name in self.heads if name != head]))
        placements = tuple(data.draw(st.sampled_from((0, 1))) for _ in order)
        self.schedule.switch(head, JoinSequence(head, tuple(order), placements))

    def teardown(self):
        if hasattr(self, "schedule"):
            self.schedule.finish()
            self.schedule.check()


TestAnySwitch = AnySwitch.TestCase
TestAnySwitch.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
