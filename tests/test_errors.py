import pickle

import pytest

from midstream import errors

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.MidstreamError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_survives_pickling_with_its_parts(kind):
    error = kind("it must hold", got=[1, None], hint="do this")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made on the line before
    assert type(copy) is kind
    assert (copy.must, copy.got, copy.hint, str(copy)) == (error.must, error.got, error.hint, str(error))


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "it must hold"),
        ({"got": 3}, "it must hold; got 3"),
        ({"hint": "do this"}, "it must hold. Hint: do this"),
        ({"got": "x", "hint": "do this"}, "it must hold; got x. Hint: do this"),
    ],
)
def test_messages_have_one_grammar(parts, text):
    assert str(errors.MidstreamError("it must hold", **parts)) == text


def test_what_a_user_asks_wrongly_is_a_value_error():
    assert all(
        issubclass(kind, ValueError) for kind in (errors.QueryError, errors.PlanError, errors.OptionError)
    )
