"""An application that enqueues, returns results, and has the dashboard. uvicorn chooses its loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from taskharbor.dashboard import Access, dashboard
from tests.on_uvloop.sums import add, harbor


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with harbor:
        yield


async def access(request: object) -> Access:
    return Access.operate("ada")


app = FastAPI(lifespan=lifespan)
app.mount("/ops", dashboard(harbor, access=access))


@app.post("/sums", status_code=202)
async def create(a: int, b: int, blocking: bool = False) -> dict[str, str]:
    if blocking:
        job = await asyncio.to_thread(add.enqueue, a, b)
    else:
        job = await add.aenqueue(a, b)
    return {"job": job.id}


@app.get("/sums/{id}")
async def read(id: str) -> dict[str, object]:
    found, loop_of_the_worker = await harbor.job(id).aresult()
    here = type(asyncio.get_running_loop()).__module__
    return {"sum": found, "loop": here if here == loop_of_the_worker else f"{here} and {loop_of_the_worker}"}
