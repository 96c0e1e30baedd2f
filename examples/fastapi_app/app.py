"""Orders over HTTP: each is stored together with the job that ships it, and the progress of the job is streamed.

A worker runs inside the server, as a small service may have it. With WORKER=0 it does not; then start one beside it:
`taskharbor worker run --app app:harbor`.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from taskharbor import Harbor, JobContext, JobNotFound

FILE = os.environ.get("SHOP_FILE", "shop.db")
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "1"))

engine = create_async_engine(f"sqlite+aiosqlite:///{FILE}")  # with Postgres: postgresql+asyncpg://…
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    shipped: Mapped[bool] = mapped_column(default=False)


@asynccontextmanager
async def database() -> AsyncIterator[AsyncEngine]:
    """What a process opens once: the server, and every worker process."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield engine
    await engine.dispose()


harbor = Harbor(f"sqlite:///{FILE}", lifespan=database)  # the same database, so that both commit together


async def get_session() -> AsyncIterator[AsyncSession]:
    """One session and one transaction for each request, and for each job."""
    async with sessions() as session, session.begin():
        yield session


Session = Annotated[AsyncSession, Depends(get_session, scope="function")]


@harbor.task(queue="orders", max_attempts=5)
async def ship(ctx: JobContext, order_id: int, session: AsyncSession = Depends(get_session)) -> str:
    steps = ("picked", "packed", "handed over")
    for number, step in enumerate(steps, 1):
        await asyncio.sleep(STEP_SECONDS)  # here you would do the work
        ctx.progress(number, len(steps), step)
        ctx.cancelled.check()
    order = await session.get_one(Order, order_id)
    order.shipped = True
    return f"{order.email} gets order {order_id}"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with database() as opened, harbor:
        if os.environ.get("WORKER") == "0":
            yield
            return
        worker = harbor.worker(concurrency=4, lifespan=lambda: nullcontext(opened))  # it shares what is open already
        running = asyncio.create_task(worker.arun())
        try:
            yield
        finally:
            worker.stop()
            await running


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def create(email: str, session: Session) -> dict[str, object]:
    order = Order(email=email)
    session.add(order)
    await session.flush()  # which gives it its id
    job = await ship.options(connection=session).aenqueue(order.id)
    if email.count("@") != 1:
        raise HTTPException(422, "not an address")  # neither the order nor the job is stored
    return {"order": order.id, "job": job.id}


@app.get("/orders/{id}")
async def read(id: int, session: Session) -> dict[str, object]:
    order = await session.get(Order, id)
    if order is None:
        raise HTTPException(404)
    return {"email": order.email, "shipped": order.shipped}


@app.get("/jobs/{id}/events")
async def events(id: str) -> StreamingResponse:
    """The job as it changes, as server-sent events: `new EventSource("/jobs/…/events")` in a browser."""
    job = harbor.job(id)
    try:
        await job.ainfo()
    except JobNotFound:
        raise HTTPException(404) from None

    async def stream() -> AsyncIterator[str]:
        async for info in job.awatch():
            progress = await job.aprogress()
            seen = {"state": info.state, "done": progress and progress.done, "note": progress and progress.note}
            yield f"data: {json.dumps(seen)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")
