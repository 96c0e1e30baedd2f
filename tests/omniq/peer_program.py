"""A published OmniQ client in an environment of its own; it calls nothing but that package's public methods.

    python peer_program.py HOST PORT DB             one JSON object a line: {"op", "args"} → {"ok"} or {"error"}
    python peer_program.py HOST PORT DB QUEUE       consume that queue until SIGTERM; each run is noted in the database

This file never runs beside the code of this project, and must not import it.
"""

import json
import sys

import redis

import omniq

host, port, db = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def plain(value):
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return {
        name: plain(getattr(value, name))
        for name in dir(value)
        if name[0] != "_" and not callable(getattr(value, name))
    }


def serve(client) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"ok": plain(getattr(client, asked["op"])(**asked["args"]))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def consume(client, queue: str) -> None:
    store = redis.Redis(host=host, port=port, db=db)

    def handler(ctx) -> None:
        store.rpush("began:peer", 1)
        store.execute_command("BRPOPLPUSH", "began:ours", "began:ours", 60)  # until the other side runs a job, too
        group = ctx.gid or "-"
        running = store.incr(f"running:{group}")
        store.rpush(f"log:{group}", json.dumps([ctx.payload["n"], running, "peer"]))
        store.decr(f"running:{group}")

    client.consume(queue=queue, handler=handler, poll_interval_s=0.005)


peer = omniq.OmniqClient(host=host, port=port, db=db)
if len(sys.argv) > 4:
    print("ready", flush=True)
    consume(peer, sys.argv[4])
else:
    print(json.dumps({"ok": omniq.__name__}), flush=True)
    serve(peer)
