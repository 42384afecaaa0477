"""What users say of sites, and what is refused."""

import pytest

from midstream.errors import QueryError
from midstream.query.network import read_link
from midstream.query.site_description import DEFAULT_LINK, SiteDescription


def test_nothing_said_is_no_sites():
    assert SiteDescription().topology("ab") is None


def test_streams_without_a_site_are_where_the_sink_is():
    topology = SiteDescription().with_stream("b", "y").with_sink("x").topology("abc")
    assert topology is not None
    assert topology.site_of == {"a": "x", "b": "y", "c": "x"}
    assert topology.network.link("x", "y") == DEFAULT_LINK
    assert topology.partitions_of_sites == {"x": 1, "y": 1}


def test_links_and_partitions():
    said = SiteDescription().with_stream("a", "x").with_stream("b", "y").with_stream("c", "z")
    said = said.with_link((), "80 ms", "50 mbit").with_link(("y", "x"), "1 ms", "1 gbit")
    topology = said.with_site("z", 3).topology("abc")
    assert topology is not None
    assert topology.sink == "x"
    assert topology.network.link("x", "y") == read_link("1 ms", "1 gbit")
    assert topology.network.link("x", "z") == read_link("80 ms", "50 mbit")
    assert topology.partitions_of_sites == {"x": 1, "y": 1, "z": 3}
    assert hash(topology) == hash(said.topology("abc"))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda s: s.with_stream("a", "new york"), "the name of a site must be"),
        (lambda s: s.with_stream("a", ""), "the name of a site must be"),
        (lambda s: s.with_sink(7), "the name of a site must be"),
        (lambda s: s.with_site("x", 0), "must be a whole number from 1; got 0"),
        (lambda s: s.with_site("x", True), "must be a whole number from 1"),
        (lambda s: s.with_link(("x",), "1 ms", "1 mbit"), "a link must be between two sites"),
        (lambda s: s.with_link(("x", "x"), "1 ms", "1 mbit"), "a link must be between two sites"),
        (lambda s: s.with_link(("x", "y", "z"), "1 ms", "1 mbit"), "a link must be between two sites"),
        (lambda s: s.with_link((), "1 ms", "fast"), "the bandwidth of a link must be"),
        (lambda s: s.with_link((), "soon", "1 mbit"), "the latency of a link"),
        (lambda s: s.with_stream("z", "x").topology("ab"), "sites must be those of the streams"),
        (lambda s: s.with_stream("a", "x").topology("ab"), "every stream must have a site"),
        (lambda s: s.with_sink("x").with_site("y", 2).topology("ab"), "must be one of a stream, or of the"),
    ],
)
def test_what_cannot_be_is_refused(wrong, problem):
    with pytest.raises(QueryError, match=problem):
        wrong(SiteDescription())
