"""Arguments on their way through JSON: what arrives is what was sent, or it is refused where it is sent."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from watchbill import App, Batch, Retry
from watchbill.app.job_options import InvalidOption
from watchbill.app.payload import InvalidPayload, InvalidResult, Signature, encode_unchecked
from watchbill.worker.handlers import BadPayload

app = App("postgresql://nobody@127.0.0.1:1/nowhere")


class Colour(enum.Enum):
    RED = "r"


class Size(NamedTuple):
    width: int
    unit: str


class Item(BaseModel):
    name: str
    price: Decimal
    notes: dict[str, Any] = {}


class Special(Item):
    discount: int


@dataclass
class Order:
    id: UUID
    items: list[Item]
    colour: Colour
    placed: datetime
    weight: float = 1.0


def everything(
    order: Order,
    wait: timedelta,
    tags: set[str],
    size: Size,
    pair: tuple[int, str],
    day: date,
    at: time | None,
    where: Path,
    kind: Literal["a", "b"] = "a",
    **more: int,
) -> None: ...


def untyped(value) -> None: ...  # type: ignore[no-untyped-def]


def loose(value: Any) -> None: ...


def with_item(item: Item) -> None: ...


def with_order(order: Order) -> None: ...


def ordinary(
    number: int,
    text: str,
    when: datetime,
    key: UUID,
    some: list[Decimal] | None = None,
    by: dict[str, date] | None = None,
) -> None: ...


def through(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    signature = Signature(function, function.__name__)
    return signature.decode(signature.encode(args, kwargs))


ORDER = Order(uuid4(), [Item(name="tea", price=Decimal("1.10"))], Colour.RED, datetime(2026, 3, 1, tzinfo=UTC))


def test_typed_arguments_arrive_unchanged() -> None:
    sent = {
        "order": ORDER,
        "wait": timedelta(days=-1, microseconds=3),
        "tags": {"a", "b"},
        "size": Size(3, "cm"),
        "pair": (1, "x"),
        "day": date(2026, 3, 1),
        "at": None,
        "where": Path("/tmp"),
        "extra": 3,
    }
    arrived = through(everything, **sent)
    assert arrived == sent
    assert {name: type(value) for name, value in arrived.items()} == {name: type(value) for name, value in sent.items()}


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))  # no half of a surrogate pair, which is refused
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_json_values_arrive_unchanged_without_annotations(value: Any) -> None:
    assert through(untyped, value) == {"value": value}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            datetime(2026, 3, 1, tzinfo=UTC),
            "value would not reach the worker unchanged: a datetime would arrive as a str",
        ),
        (Decimal("1.1"), "a Decimal would arrive as a str"),
        ({1, 2}, "a set would arrive as a list"),
        (uuid4(), "a UUID would arrive as a str"),
        (ORDER, "an Order would arrive as a dict"),
        (Item(name="tea", price=Decimal(1)), "an Item would arrive as a dict"),
        ({"deep": [{"when": date(2026, 3, 1)}]}, "value.deep[0].when would not reach the worker"),
        ({1: "one"}, "its keys would arrive as text"),
        (float("nan"), "nan would arrive as None"),
        ([float("inf")], "value[0] would not reach the worker unchanged: inf would arrive as None"),
        (2**63, "needs more than 64 bits"),
        ("a\0b", "no NUL character"),
        ("\ud800", "cannot be stored as JSON"),
        (object(), "cannot be stored as JSON"),
        (b"\xff", "cannot be stored as JSON"),
    ],
    ids=[
        "datetime",
        "decimal",
        "set",
        "uuid",
        "dataclass",
        "model",
        "deep",
        "keys",
        "nan",
        "inf",
        "64",
        "nul",
        "half",
        "object",
        "bytes",
    ],
)
@pytest.mark.parametrize("function", [untyped, loose], ids=["no type", "Any"])
def test_value_that_would_change_type_is_refused(function: Any, value: Any, why: str) -> None:
    with pytest.raises(InvalidPayload) as error:
        through(function, value)
    assert error.value.message.startswith(f"{function.__name__}: value")
    assert why in error.value.message


def test_error_names_the_field_of_a_model_that_would_change() -> None:
    with pytest.raises(InvalidPayload, match=r"item\.notes\.when .* a datetime would arrive as a str"):
        through(with_item, Item(name="tea", price=Decimal(1), notes={"when": datetime.now(UTC)}))
    with pytest.raises(InvalidPayload, match=r"item .* a Special would arrive as an Item"):
        through(with_item, Special(name="tea", price=Decimal(1), discount=3))
    with pytest.raises(InvalidPayload, match=r"order\.weight"):
        through(with_order, Order(ORDER.id, [], Colour.RED, ORDER.placed, weight=float("nan")))


@pytest.mark.parametrize("levels", [300, 5000])
def test_too_deeply_nested_payload_of_an_unknown_type_is_refused(levels: int) -> None:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    with pytest.raises(InvalidPayload, match="elsewhere: the payload cannot be stored as JSON"):
        encode_unchecked("elsewhere", {"value": value})


def test_too_deeply_nested_value_is_refused() -> None:
    value: list[Any] = []
    for _ in range(200_000):
        value = [value]
    with pytest.raises(InvalidPayload, match="untyped: value=a list too deep to be shown"):
        through(untyped, value)


def test_only_ordinary_types_skip_the_round_trip_check() -> None:
    assert Signature(ordinary, "ordinary")._is_restored_exactly
    assert not any(Signature(each, "x")._is_restored_exactly for each in (untyped, loose, with_item, everything))


def test_decode_refuses_a_payload_that_does_not_fit() -> None:
    with pytest.raises(BadPayload, match="number: input should be a valid integer"):
        Signature(ordinary, "ordinary").decode(b'{"number": "x", "text": "", "when": 0, "key": "no"}')


@pytest.mark.parametrize("value", ["a\0b", 2**63, -(2**63) - 1])
def test_unstorable_value_in_a_large_result_is_found(value: Any) -> None:
    """As in a small one, which is searched in another way."""

    def collect() -> list[Any]: ...  # type: ignore[empty-body]

    signature = Signature(collect, "collect")
    for length in (1, 1_100_000):
        with pytest.raises(InvalidPayload, match="result"):
            signature.encode_result(["x" * length, value])
    assert len(signature.encode_result(["x" * 1_100_000, 2**62])) > 1_100_000


def test_decode_result_refuses_a_value_of_another_type() -> None:
    def measure() -> float: ...  # type: ignore[empty-body]

    with pytest.raises(
        InvalidResult, match=r"measure: the result does not match the return type: result: .*, not 'wide'"
    ):
        Signature(measure, "measure").decode_result("wide")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"priority": "high"}, "whole number"),
        ({"priority": 2**15}, "between -32,768 and 32,767"),
        ({"queue": None}, "queue=None is invalid: give a text"),
        ({"run_at": "tomorrow"}, "a datetime"),
        ({"delay": "5 parsecs"}, "seconds, a timedelta, or a text such as"),
        ({"timeout": float("nan")}, "seconds, a timedelta, or a text such as"),
        ({"retry": 1.5}, r"a number of attempts, or a policy such as Retry\(max_attempts=3"),
        ({"id": "x"}, "a UUID"),
    ],
    ids=str,
)
def test_using_refuses_an_invalid_option(options: dict[str, Any], why: str) -> None:
    task = app.task(type=f"options {options}")(loose)
    with pytest.raises(InvalidOption, match=why):
        task.using(**options)


def test_invalid_task_is_refused_at_its_declaration() -> None:
    with pytest.raises(InvalidOption, match="Retry"):
        app.task(retry="3")(loose)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="aliases must be a list of names"):
        app.task(aliases="old.name")(loose)
    with pytest.raises(ValueError, match="a whole number from 1"):
        app.task(version=0)(loose)

    def generator() -> Any:
        yield 1

    with pytest.raises(TypeError, match="a generator cannot be a task"):
        app.task(generator)
    with pytest.raises(TypeError, match=r"enqueue_many\(\) takes calls"):
        app.enqueue_many([app.task(retry=Retry())(loose)])


def test_payload_error_quotes_values_as_written() -> None:
    app = App("postgresql://x/y")

    @app.task(type="paint")
    def paint(color: Literal["Red", "Blue"]) -> None: ...

    with pytest.raises(InvalidPayload, match="color: input should be 'Red' or 'Blue', not 'red'"):
        paint.bind("red")  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload, match="paint: color is missing; colour is unknown"):
        app.enqueue("paint", {"colour": "Red"})


def test_a_batch_task_shows_what_one_call_takes() -> None:
    def index(docs: list[int]) -> None: ...

    task = App().task(batch=Batch(size=5))(index)
    with pytest.raises(InvalidPayload) as caught:
        task.bind("seven")  # type: ignore[arg-type]
    assert caught.value.hint == "It takes (docs: int) -> None."
