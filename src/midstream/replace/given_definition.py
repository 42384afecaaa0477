"""Which of the two definitions of a replacement a query is started again with, on whatever terms."""

from __future__ import annotations

from midstream.errors import CheckpointError
from midstream.protocol.query_terms import committed_terms, terms_of
from midstream.protocol.settings import Settings, check_same_definition, first_difference
from midstream.query.query import Query
from midstream.state.manifest import Manifest


def is_new_definition(
    given: Query, settings: Settings, old: Manifest, new: Manifest, *, is_running: bool
) -> bool:
    """Whether the given definition is the new one; an error if it is neither.

    Of ``new`` only the definition counts, and the outputs that earlier results have where its own go. If the
    two definitions differ in nothing but terms, the given one may be either, on terms of neither. Then it is
    the old one as long as the other one is only asked for, so that its terms hold at once, and the new one if
    the replacement ``is_running``, so that they hold once it has ended.
    """
    differences = [first_difference(each.definition, given, settings) for each in (old, new)]
    of_old, of_new = differences
    if of_old is not None and of_new is not None:
        raise CheckpointError(
            "a query must be started with the old definition or the new one until a replacement has ended",
            got=f"neither: {of_old.was} in the old one, not {of_old.now}; {of_new.was} in the new one, not "
            f"{of_new.now}",
            hint="start it with one of the two, and once there was an event replacement-ended, let this one "
            "replace it",
        )
    may_be_old, may_be_new = (
        difference is None and _allows_terms(each, given, settings)
        for difference, each in zip(differences, (old, new), strict=True)
    )
    if may_be_old != may_be_new:
        return may_be_new
    if of_old is not None or of_new is not None:
        return of_new is None
    if is_running:
        return terms_of(given) != committed_terms(old)
    return terms_of(given) == committed_terms(new)


def check_windows_may_change(settings: Settings, new: Manifest, given: Query) -> None:
    """Refuse other windows than those that the new definition was asked for with, if state may be spilled.

    They would hold once the replacement has ended, and be refused then, in the middle of a run.
    """
    if settings.memory is not None and terms_of(given).within != committed_terms(new).within:
        raise CheckpointError(
            "windows must stay as they are until a replacement has ended, if there is a budget of memory",
            got="other windows of the new definition",
            hint="start the query with the windows that the new definition was asked for with, or leave out "
            "stateMemory",
        )


def _allows_terms(manifest: Manifest, given: Query, settings: Settings) -> bool:
    try:
        check_same_definition(manifest, given, settings)
    except CheckpointError:
        return False
    return True
