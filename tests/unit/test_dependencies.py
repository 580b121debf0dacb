"""Dependencies at the declaration and at the enqueue: what is refused, and that they are not in the payload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from watchbill import App, Connection, Depends
from watchbill.app.payload import InvalidPayload


def get_word() -> str:
    return "word"


async def get_async_word() -> str:
    return "word"


async def get_async_generator() -> AsyncIterator[str]:
    yield "word"


def get_generator(word: str = Depends(get_word)) -> Iterator[str]:
    yield word


def get_over_async(word: str = Depends(get_async_word)) -> str:
    return word


def get_with_parameter(name: str) -> str:
    return name


def get_shared_from_attempt(word: str = Depends(get_word, per="attempt")) -> str:
    return word


def takes_word(to: str, *, word: str = Depends(get_word)) -> str:
    return to + word


def takes_word_and_more(to: str, *, word: str = Depends(get_word), **more: int) -> None: ...
def takes_word_in_transaction(connection: Connection, to: str, *, word: str = Depends(get_word)) -> None: ...
def takes_by_place(to: str, word: str = Depends(get_word)) -> None: ...
def takes_async(*, word: str = Depends(get_async_word)) -> None: ...
def takes_async_generator(*, word: str = Depends(get_async_generator)) -> None: ...
def takes_over_async(*, word: str = Depends(get_over_async)) -> None: ...
def takes_with_parameter(*, word: str = Depends(get_with_parameter)) -> None: ...
def takes_shared_from_attempt(*, word: str = Depends(get_shared_from_attempt)) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (takes_by_place, r"word is a dependency, which is given by name only; write `\*,` before it"),
        (takes_async, "a `def` cannot wait for get_async_word"),
        (takes_async_generator, "a `def` cannot wait for get_async_generator"),
        (takes_over_async, "a `def` cannot wait for get_over_async"),
        (takes_with_parameter, "parameter 'name' of get_with_parameter has no default"),
        (takes_shared_from_attempt, r'cannot need get_word, .* use Depends\(get_shared_from_attempt, per="attempt"\)'),
    ],
)
def test_dependency_that_cannot_be_made_is_refused_at_the_declaration(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        App().task(function)


def test_depends_takes_a_function_and_a_known_scope() -> None:
    with pytest.raises(TypeError, match="without calling it"):
        Depends(get_word())  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="must be 'process' or 'attempt'"):
        Depends(get_word, per="job")  # type: ignore[call-overload]


@pytest.mark.parametrize("function", [takes_word, takes_word_and_more, takes_word_in_transaction])
def test_dependency_is_not_in_the_payload_and_cannot_be_enqueued(function: Callable[..., Any]) -> None:
    app = App("postgresql://nowhere/x")
    task: Any = app.task(function)
    assert task.bind("ada").payload == b'{"to":"ada"}'
    for call in (
        lambda: task.enqueue("ada", word="mine"),
        lambda: task.bind(to="ada", word="mine"),
        lambda: asyncio.run(task.aenqueue("ada", word="mine")),
        lambda: app.enqueue(task.type, {"to": "ada", "word": "mine"}),
    ):
        with pytest.raises(InvalidPayload, match="word is a dependency, which the worker makes; it cannot be"):
            call()


def test_plain_call_needs_its_dependencies() -> None:
    task = App().task(takes_word)
    assert task("ada ", word="mine") == "ada mine"
    with pytest.raises(TypeError, match=r"called and not enqueued, .* dependency word \(get_word\); give it: word="):
        task("ada")


def test_task_without_dependencies_is_not_wrapped() -> None:
    app = App("postgresql://nowhere/x")

    @app.task
    async def plain() -> None: ...

    assert app.handlers()[plain.type].function is plain.function


def test_override_of_something_that_no_task_needs_is_refused() -> None:
    app = App()
    app.task(takes_word)
    refused = pytest.raises(ValueError, match="no task of this App depends on get_async_word")
    with refused, app.override(get_async_word, 1):
        pass


def test_app_with_a_state_type_is_named_after_its_module() -> None:
    assert App[int]().name == App().name == __name__
    assert App[int]().place.startswith(__file__)
