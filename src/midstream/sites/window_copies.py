"""The windows at a site: those of its own streams, and copies of others.

Windows are counted in epochs here: rows live for ``window`` epochs after their own. The window of a stream
is always kept where it lives. A copy is made while the old plan runs, so that the new one need not wait
until it has filled: the site subscribes to new rows, and fetches the earlier ones, the newest first, in
portions. It fetches only what it lacks and what will still be alive: the oldest rows may expire while it
waits. A copy that no plan wants gets no new rows, and what it has expires; if it is wanted again before,
only the rest is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from midstream.query.network import Site
from midstream.sites.messages import (
    Fetch,
    Outgoing,
    Portion,
    Rows,
    Subscribe,
    Subscribed,
    Unsubscribe,
    WindowMessage,
)


class OwnWindow(msgspec.Struct):
    """The window of a stream where it lives: the rows of all epochs between two."""

    oldest: int = 0
    end: int = 0
    """The epoch whose rows arrive next."""
    subscribers: list[Site] = msgspec.field(default_factory=list)


class WindowCopy(msgspec.Struct):
    """A copy of a window at another site."""

    held: set[int] = msgspec.field(default_factory=set)
    """The epochs whose rows are here."""
    is_subscribed: bool = False
    starts: int | None = None
    """Rows from this epoch on come by themselves; None until the stream's site has answered."""
    oldest: int = 0
    """Rows of earlier epochs are not to be had any more."""
    is_fetching: bool = False


class WindowsState(msgspec.Struct):
    """What a site remembers of windows."""

    own: dict[str, OwnWindow]
    copies: dict[str, WindowCopy] = msgspec.field(default_factory=dict)


class WindowCopies:
    """A site's windows."""

    def __init__(
        self, site_of: Mapping[str, Site], state: WindowsState, *, window: int, portion: int
    ) -> None:
        """A portion has the rows of so many epochs."""
        self.site_of = site_of
        self.state = state
        self.window = window
        self.portion = portion

    def arrive(self, stream: str) -> list[Outgoing]:
        """The rows of the next epoch of an own stream are here; those with a copy get them."""
        own = self.state.own[stream]
        own.end += 1
        return [(site, Rows(stream, own.end - 1)) for site in own.subscribers]

    def want(self, streams: Iterable[str], first: int) -> list[Outgoing]:
        """These windows and no others are needed here, new ones for epochs from ``first`` on."""
        wanted = [stream for stream in streams if stream not in self.state.own]
        found: list[Outgoing] = []
        for stream in wanted:
            copy = self.state.copies.setdefault(stream, WindowCopy())
            if not copy.is_subscribed:
                copy.is_subscribed, copy.starts = True, None
                oldest = max(0, first - self.window)
                held = tuple(sorted(epoch for epoch in copy.held if epoch >= oldest))
                found.append((self.site_of[stream], Subscribe(stream, oldest, held)))
        for stream, copy in self.state.copies.items():
            if copy.is_subscribed and stream not in wanted:
                copy.is_subscribed, copy.starts, copy.is_fetching = False, None, False
                found.append((self.site_of[stream], Unsubscribe(stream)))
        return found

    def handle(self, source: Site, message: WindowMessage, first: int) -> list[Outgoing]:
        """Take a message about windows; those that are fetched are for epochs from ``first`` on."""
        match message:
            case Subscribe(stream, needed, held):
                own = self.state.own[stream]
                own.subscribers.append(source)
                alive = range(own.end - 1, max(own.oldest, needed) - 1, -1)
                lacking = tuple(epoch for epoch in alive if epoch not in held)[: self.portion]
                return [(source, Subscribed(stream, own.end, lacking, own.oldest))]
            case Unsubscribe(stream):
                self.state.own[stream].subscribers.remove(source)
                return []
            case Fetch(stream, epochs):
                oldest = self.state.own[stream].oldest
                found = tuple(epoch for epoch in epochs if epoch >= oldest)
                return [(source, Portion(stream, found, oldest))]
            case Subscribed(stream, starts, epochs, oldest):
                # The answer to the newest subscription: none ends before its answer, for the switch that
                # wants it is not ready without.
                copy = self.state.copies[stream]
                copy.held.update(epochs)
                copy.starts, copy.oldest = starts, max(copy.oldest, oldest)
            case Portion(stream, epochs, oldest):
                copy = self.state.copies[stream]
                copy.held.update(epochs)
                copy.oldest, copy.is_fetching = max(copy.oldest, oldest), False
            case Rows(stream, epoch):
                self.state.copies[stream].held.add(epoch)
                return []
        return self._fetch(stream, first)

    def earliest(self, streams: Iterable[str], first: int) -> int:
        """The first epoch, from some epoch on, whose whole windows can be had here."""
        for stream in streams:
            copy = self.state.copies.get(stream)
            if copy is not None and copy.oldest:
                first = max(first, copy.oldest + self.window)
        return first

    def is_prepared(self, stream: str, first: int) -> bool:
        """Whether everything is here that an epoch needs, or comes by itself."""
        if stream in self.state.own:
            return True
        copy = self.state.copies.get(stream)
        return copy is not None and copy.starts is not None and not self._missing(copy, first)

    def has(self, stream: str, epoch: int) -> bool:
        """Whether the rows of an epoch and of its window are here."""
        first = max(0, epoch - self.window)
        if stream in self.state.own:
            return self.state.own[stream].end > epoch
        held = self.state.copies[stream].held
        return all(one in held for one in range(first, epoch + 1))

    def expire(self, next_epoch: int) -> None:
        """Forget rows that no epoch needs any more."""
        oldest = next_epoch - self.window
        for own in self.state.own.values():
            own.oldest = max(own.oldest, oldest)
        for copy in self.state.copies.values():
            copy.held = {epoch for epoch in copy.held if epoch >= oldest}

    def _fetch(self, stream: str, first: int) -> list[Outgoing]:
        copy = self.state.copies[stream]
        if copy.is_fetching or copy.starts is None:
            return []
        missing = self._missing(copy, self.earliest((stream,), first))[: self.portion]
        if not missing:
            return []
        copy.is_fetching = True
        return [(self.site_of[stream], Fetch(stream, tuple(missing)))]

    def _missing(self, copy: WindowCopy, first: int) -> list[int]:
        """The epochs that the window of an epoch still lacks, the newest first."""
        if copy.starts is None:
            return []
        lower = max(0, first - self.window)
        return [epoch for epoch in range(copy.starts - 1, lower - 1, -1) if epoch not in copy.held]
