"""A stand-in for Celery, in the shapes that the report reads: nothing is sent, nothing runs.

`make matrix` compares the report with the one that the real Celery gives.
"""

import importlib


class Signal:
    def __init__(self):
        self.receivers = []

    def connect(self, function):
        self.receivers.append(function)
        return function

    def send(self, sender):
        for function in self.receivers:
            function(sender)


class Task:
    """Celery makes a subclass for each task, whose attributes are its options."""

    from_config = ()
    max_retries = 3
    default_retry_delay = 180

    def s(self, *args, **kwargs):
        return {"task": self.name, "args": args, "kwargs": kwargs}


class Settings(dict):
    def __getattr__(self, key):
        return self[key]

    def get(self, key, default=None):
        return dict.get(self, key, {"task_default_queue": "celery"}.get(key, default))

    def table(self, with_defaults, censored):
        assert not with_defaults
        assert censored
        return dict(self)


class Celery:
    last = None

    def __init__(self, name, broker, include):
        self.conf = Settings(broker_url=broker, include=include)
        self.on_after_finalize = Signal()
        self.loader = self.amqp = self.router = self
        self._tasks, self.finalized = {}, False
        Celery.last = self

    conf = None

    @property
    def tasks(self):
        self.finalize()
        return self._tasks

    def task(self, *functions, name=None, base=Task, bind=False, **options):
        def make(function):
            run = function if bind else staticmethod(function)
            known = {"name": name or f"{function.__module__}.{function.__name__}", "run": run, "_decorated": True}
            made = type(function.__name__, (base,), {**known, "__module__": function.__module__, **options})()
            self._tasks[made.name] = made
            return made

        return make(*functions) if functions else make

    def register_task(self, task):
        self._tasks[task.name] = task

    def finalize(self):
        if not self.finalized:
            self.finalized = True
            self.on_after_finalize.send(self)

    def import_default_modules(self):
        for module in self.conf["include"]:
            importlib.import_module(module)

    def route(self, options, name):
        return {**options, **self.conf.get("task_routes", {}).get(name, {})}

    def add_periodic_task(self, schedule, signature, name):
        self.conf["beat_schedule"][name] = {"schedule": schedule, **signature}


def shared_task(**options):
    return Celery.last.task(**options)


chain = chord = group = None
