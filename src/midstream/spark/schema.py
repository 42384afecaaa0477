"""Conversion between schemas of Spark and of Arrow, which the core uses."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from midstream.errors import QueryError, show_value

_SUPPORTED = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


def arrow_schema(stream: str, df: DataFrame) -> pa.Schema:
    """The columns of a DataFrame in Arrow's types; a type that Arrow does not have is an error."""
    fields: list[pa.Field] = []
    for field in df.schema.fields:
        if field.name.lower() in {seen.name.lower() for seen in fields}:
            raise QueryError(
                "a stream must have columns with different names, whatever their case",
                got=f"{stream}.{field.name} twice",
                hint="rename or drop one of them in the DataFrame",
            )
        _check(f"{stream}.{field.name}", field.dataType)
        fields.append(pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC")))
    return pa.schema(fields)


def _check(column: str, dtype: DataType) -> None:
    """Refuse types, also nested ones, whose values would be stored or compared differently."""
    if isinstance(dtype, StringType) and dtype.collation != "UTF8_BINARY":
        raise QueryError(
            "text must be compared byte by byte",
            got=f"{column} with collation {dtype.collation}",
            hint="cast it to string in the DataFrame",
        )
    if isinstance(dtype, StructType):
        for field in dtype.fields:
            _check(f"{column}.{field.name}", field.dataType)
    elif isinstance(dtype, ArrayType):
        _check(f"{column}[]", dtype.elementType)
    elif isinstance(dtype, MapType):
        _check(f"{column}.key", dtype.keyType)
        _check(f"{column}.value", dtype.valueType)
    elif not isinstance(dtype, _SUPPORTED):
        raise QueryError(
            "every column must have a type that the state of a join can keep",
            got=f"{column} of type {dtype.simpleString()}",
            hint="drop or cast it in the DataFrame",
        )


def result_type(function: str, given: object) -> pa.DataType:
    """The type of results that a user has declared, by its text, or as a type of PySpark's or of Arrow's."""
    try:
        if isinstance(given, pa.DataType):
            given = from_arrow_type(given, prefer_timestamp_ntz=True)
        dtype = DataType.fromDDL(given) if isinstance(given, str) else given
    except PySparkException:
        dtype = None
    if not isinstance(dtype, DataType):
        raise QueryError(
            f"the type of results of {function} must be one of Spark's",
            got=show_value(given),
            hint="write @udaf('double'), or another type as in Spark's DDL",
        )
    _check(f"the result of {function}", dtype)
    return to_arrow_type(dtype, timezone="UTC")


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of results in Spark's types."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
