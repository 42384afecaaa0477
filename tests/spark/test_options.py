"""The records of options: what they read, what they refuse, and what the rest of the program gets."""

import pytest

from midstream.engine.places import Places
from midstream.errors import OptionError
from midstream.memory.balance import BalanceSettings
from midstream.protocol.settings import ONE_DAY, Settings
from midstream.spark.options import OPTIONS, QueryOptions
from midstream.spark.resume import make_settings
from midstream.state.routing_table import RoutingTable
from midstream.values import Micros

ONLY_BESIDE_OTHERS = {"spill", "spillShare", "balanceThreshold", "balancePause", "balanceProductivity"}


def _options(**given: object) -> QueryOptions:
    options = QueryOptions()
    for name, value in given.items():
        options = options.with_option(name, value)
    return options


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.default is not None], ids=lambda option: option.name
)
def test_the_guide_shows_a_default_as_the_text_that_reads_as_it(option):
    assert option.read(option.name, option.shown_default) == option.default


def test_the_guide_shows_the_defaults_of_options_that_count_only_beside_others():
    given = {"stateMemory": "1m", "balance": "active_disk"}
    shown = {option.name: option.shown_default for option in OPTIONS if option.name in ONLY_BESIDE_OTHERS}
    assert set(shown) == ONLY_BESIDE_OTHERS
    settings = make_settings(_options(**given), None, parallelism=2)
    assert make_settings(_options(**given, **shown), None, parallelism=2) == settings


def test_names_are_read_in_any_case_and_the_last_value_counts():
    options = _options(PARTITIONS=3, numrows="5").with_option("partitions", "4")
    assert (options.partitions, options.num_rows) == (4, 5)
    assert options.with_option("numRows", 6) == _options(partitions=4, numRows=6)


@pytest.mark.parametrize(
    ("name", "given", "attribute", "value"),
    [
        ("truncate", False, "truncate", False),
        ("truncate", "True", "truncate", True),
        ("adapt", "OFF", "adapt", False),
        ("background", "off", "background", False),
        ("strategy", "Moving_State", "strategy", "moving_state"),
        ("goal", "quick", "goal", "quick"),
        ("singlePartition", "Forbid", "single_partition", "forbid"),
        ("eventTimeClock", "stream", "event_time_clock", "stream"),
        ("lateShareWarning", 0.25, "late_share_warning", 0.25),
        ("lateShareWarning", "1", "late_share_warning", 1.0),
        ("idleTimeout", "2 minutes", "idle_timeout", 120_000_000),
        ("maxEventTimeAhead", "1 hour", "max_event_time_ahead", 3_600_000_000),
        ("maxEventTimeAhead", "off", "max_event_time_ahead", None),
        ("checkpointLocation", "s3://bucket/x/", "checkpoint_location", "s3://bucket/x"),
        ("path", "file:///tmp/a%20b/../c", "path", "/tmp/c"),  # noqa: S108  # nothing is written
        ("balance", "OFF", "balance", "off"),
        ("balanceThreshold", "0.5", "balance_threshold", 0.5),
        ("balanceProductivity", "3", "balance_productivity", 3.0),
        ("forcedSpill", "1m", "forced_spill", 1 << 20),
        ("initialShares", "2, 1,1", "initial_shares", (2, 1, 1)),
    ],
)
def test_text_becomes_a_typed_value(name, given, attribute, value):
    got = getattr(_options(**{name: given}), attribute)
    assert got == value
    assert type(got) is type(value)


def test_credentials_in_an_address_are_not_shown():
    with pytest.raises(OptionError, match=r"got 's3://\.\.\.@bucket/x'"):
        _options(checkpointLocation="s3://key:secret@bucket/x")


def test_settings_follow_the_options():
    options = _options(partitions=3, groups=32, idleTimeout="1 second", adapt="off", goal="cheap")
    options = options.with_option("background", "off").with_option("singlePartition", "forbid")
    settings = make_settings(options, None, parallelism=8)
    assert settings.single_partition == "forbid"
    assert (settings.partitions, settings.groups) == (3, 32)
    assert (settings.idle_timeout, settings.adapt) == (1_000_000, False)
    assert (settings.policy.strategy, settings.policy.background, settings.policy.goal) == (
        "auto",
        False,
        "cheap",
    )


def test_settings_of_balance_follow_the_options():
    options = _options(balance="active_disk", stateMemory="1m", balancePause="1 minute", initialShares="3,1")
    settings = make_settings(options, None, parallelism=2)
    assert settings.balance == BalanceSettings(mode="active_disk", pause=Micros(60_000_000))
    assert settings.shares == (3, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"balanceThreshold": "0.5"}, "balanceThreshold must be set together with balance"),
        ({"balance": "active_disk"}, "balance must be 'lazy_disk' or 'off' without stateMemory"),
    ],
)
def test_options_of_balance_that_would_have_no_effect_are_refused(given, message):
    with pytest.raises(OptionError, match=message):
        make_settings(_options(**given), None, parallelism=2)


def test_settings_without_options_are_the_defaults_or_those_of_the_checkpoint():
    assert make_settings(QueryOptions(), None, parallelism=8) == Settings(8, 512, adapt=True)
    assert make_settings(QueryOptions(), None, parallelism=200).groups == 800
    assert make_settings(QueryOptions(), None, parallelism=10**6).partitions == 512
    stored = Places(7, (RoutingTable(0, 5), RoutingTable(4, 3)))
    settings = make_settings(QueryOptions(), stored, parallelism=8)
    # It goes on with what the checkpoint has, and with what is requested.
    assert (settings.partitions, settings.groups) == (None, 7)
    assert make_settings(_options(partitions=6), stored, parallelism=8).partitions == 6
    assert settings.max_event_time_ahead == ONE_DAY
    # What contradicts the checkpoint is refused later, where the error can name both.
    assert make_settings(_options(groups=9), stored, parallelism=8).groups == 9


@pytest.mark.parametrize("address", ["gs://bucket/x", "hdfs://host/x", "http://host/x", "memory://x"])
def test_a_store_whose_conditional_puts_are_not_known_to_be_safe_is_refused(address):
    with pytest.raises(OptionError, match="conditional puts are known to be safe"):
        QueryOptions().with_option("checkpointLocation", address)
