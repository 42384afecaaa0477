"""``udaf``: how a user defines an aggregate function, as a class, in the way of PySpark's ``udtf``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace

from midstream.errors import QueryError, show_value

_METHODS = ("add", "merge", "result", "dump", "load")


@dataclass(frozen=True)
class UserFunction:
    """A function that a user has defined: called with columns, it is an aggregate of them."""

    user_class: type
    type: object
    """The type of its results: as the user gave it, or Arrow's once a query has read it."""

    @property
    def name(self) -> str:
        """What definitions call it: the name of its class."""
        return self.user_class.__name__

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[object, ...]:
        """A class that inherits from the function inherits from its class, and is a plain class itself."""
        return (self.user_class,)

    def __call__(self, *columns: str) -> UserCall:
        """The aggregate of columns, ``stream.column`` each, which then gets a name with ``alias``."""
        if not columns or not all(isinstance(column, str) for column in columns):
            raise QueryError(
                f"{self.name} must be given columns by their names",
                got=", ".join(map(show_value, columns)) or "none",
                hint=f"write {self.name}('payments.amount').alias('a_name')",
            )
        return UserCall(self, columns)


@dataclass(frozen=True, repr=False)
class UserCall:
    """A user-defined function of some columns."""

    function: UserFunction
    columns: tuple[str, ...]
    name: str | None = None

    def alias(self, name: str) -> UserCall:
        """The same with a name, which it must have."""
        if not isinstance(name, str) or not name.strip():
            raise QueryError("the name of an aggregate must be text", got=show_value(name))
        return replace(self, name=name)

    def __repr__(self) -> str:
        return f"{self.function.name}({', '.join(map(repr, self.columns))})"


def udaf(returnType: object) -> Callable[[object], UserFunction]:  # noqa: N803  # Spark's name
    """Make an aggregate function of a class: ``@udaf("double")``.

    An object of the class is the state of one group. It is made without arguments, and its class has

    - ``add(self, batch)``: takes rows of the group, a ``pyarrow.RecordBatch`` of the columns;
    - ``merge(self, other)``: takes what another object of the class has seen;
    - ``result(self)``: the value, None for null;
    - ``dump(self)``: the state as ``bytes``, ``pyarrow.RecordBatch`` or ``pyarrow.Table``;
    - ``load(cls, state)``, a class method: the object that has dumped this.

    Args:
        returnType: The type of results: its text as in Spark's DDL, or a type of PySpark or of Arrow.
    """
    if inspect.isclass(returnType) and any(hasattr(returnType, name) for name in _METHODS):
        raise QueryError(
            "udaf must be given the type of the results",
            got=f"the class {returnType.__name__} itself",
            hint=f"write @udaf('double') before class {returnType.__name__}",
        )

    def define(user_class: object) -> UserFunction:
        if not inspect.isclass(user_class):
            raise QueryError(
                "what udaf makes a function of must be a class",
                got=show_value(user_class),
                hint="write @udaf('double') before a class with add, merge, result, dump and load",
            )
        missing = [name for name in _METHODS if not callable(getattr(user_class, name, None))]
        if missing:
            raise QueryError(
                f"the class of an aggregate must have the methods {', '.join(_METHODS)}",
                got=f"{user_class.__name__} without {', '.join(missing)}",
                hint="add them to the class",
            )
        if not isinstance(inspect.getattr_static(user_class, "load"), classmethod | staticmethod):
            raise QueryError(
                "load must be a class method: it makes the object",
                got=f"a method of objects of {user_class.__name__}",
                hint="write @classmethod before def load(cls, state)",
            )
        if needed := _arguments_of(user_class):
            raise QueryError(
                "the class of an aggregate must make objects without arguments",
                got=f"{user_class.__name__}, which needs {', '.join(needed)}",
                hint="give them defaults, or make a class for each use",
            )
        return UserFunction(user_class, returnType)

    return define


def _arguments_of(user_class: type) -> list[str]:
    """The arguments without which no object of a class can be made."""
    try:
        parameters = inspect.signature(user_class).parameters.values()
    except (TypeError, ValueError):
        return []  # it does not say, as some that are written in C do not
    gathers = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in gathers]
