"""What is begun is carried out, whoever goes."""

from __future__ import annotations

import asyncio

import pytest

from kraft.http.finish import to_its_end
from tests.unit.net.harness import on_a_loop


@on_a_loop
@pytest.mark.parametrize("fails", [False, True])
async def test_it_ends_only_with_its_work(fails: bool) -> None:
    work: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waits = asyncio.ensure_future(to_its_end(work))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waits.done()
    if fails:
        work.set_exception(OSError("too late"))
    else:
        work.set_result("done")
    with pytest.raises(asyncio.CancelledError):
        await waits


@on_a_loop
async def test_its_result_and_its_error_are_those_of_the_work() -> None:
    work: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work.set_result("done")
    assert await to_its_end(work) == "done"
    failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    failed.set_exception(OSError("no"))
    with pytest.raises(OSError, match="no"):
        await to_its_end(failed)
