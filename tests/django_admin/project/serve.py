"""Serves the project: `serve.py wsgi` with a thread for each request, `serve.py asgi` with uvicorn. Prints its port."""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")


def prepare() -> None:
    """Make the database, and a user for each permission; the password is the name."""
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    users = get_user_model().objects
    users.create_superuser("root", password="root")
    users.create_user("customer", password="customer")
    for name in ("nothing", "view", "operate", "delete", "reveal"):
        user = users.create_user(name, password=name, is_staff=True)
        if name != "nothing":
            user.user_permissions.add(
                Permission.objects.get(codename=f"{name}_job", content_type__app_label="taskharbor")
            )


def wsgi() -> None:
    """The server of `manage.py runserver`."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
    from django.core.wsgi import get_wsgi_application

    class Handler(WSGIRequestHandler):  # type: ignore[misc]  # Django has no types
        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadedWSGIServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.set_app(StaticFilesHandler(get_wsgi_application()))
    print(server.server_port, flush=True)
    server.serve_forever()


def asgi() -> None:
    import socket

    import uvicorn
    from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
    from django.core.asgi import get_asgi_application

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(
        ASGIStaticFilesHandler(get_asgi_application()),
        log_level="warning",
        lifespan="off",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    import django

    django.setup()
    if sys.argv[1] == "prepare":
        prepare()
    else:
        {"wsgi": wsgi, "asgi": asgi}[sys.argv[1]]()
