"""The name of an exception's class: one for records, filters, reports and what a person types.

A record has the *stored* name: module and qualified name, `zipfile.BadZipFile`. Python's own classes have no module
(`KeyError`), ours have the package alone (`taskharbor.JobDead`). A filter takes a *full* name, which means one class:
the stored one, where Python's own are written `builtins.KeyError`. A *bare* name, without a dot, may mean several
classes, so it is only for looking.

An exception is the user's object, so nothing here runs code of its class.
"""

from __future__ import annotations

import builtins
import sys
from hashlib import sha256
from pathlib import Path

from taskharbor.model.bounds import MAX_NAME_BYTES, replace_unstorable
from taskharbor.model.naming import module_name, qualified_name

_OUR_PACKAGE = __name__.partition(".")[0]
_PYTHONS_OWN = "builtins."
_SCRIPTS = ("__main__", "__mp_main__")  # a script, and the same in its child processes
_DIGITS = 16


def error_class_of(kind: type) -> str:
    """The stored name of a class. Two classes have the same one only if their module and qualified name are the same.

    >>> import json
    >>> error_class_of(KeyError), error_class_of(json.JSONDecodeError)
    ('KeyError', 'json.decoder.JSONDecodeError')
    """
    module, name = module_name(kind), qualified_name(kind)
    if module == "builtins":
        if vars(builtins).get(name) is kind:
            return name
        module = "?"  # it says that it is Python's own
    elif module in _SCRIPTS:
        module = script_module()
    elif module.partition(".")[0] == _OUR_PACKAGE:
        module = _OUR_PACKAGE  # modules change
    return storable(f"{module}.{name}")


def script_module() -> str:
    """The name by which a worker imports what is the script of this process; `__main__` if there is no file."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return Path(file).stem if file else "__main__"


def full_error_name(stored: str) -> str:
    """The full name that means exactly the class of a record.

    >>> full_error_name("KeyError"), full_error_name("zipfile.BadZipFile")
    ('builtins.KeyError', 'zipfile.BadZipFile')
    """
    return f"{_PYTHONS_OWN}{stored}" if is_bare(stored) else stored


def stored_error_name(full: str) -> str:
    """The name in the record, of a full name.

    >>> stored_error_name("builtins.KeyError"), stored_error_name("zipfile.BadZipFile")
    ('KeyError', 'zipfile.BadZipFile')
    """
    name = full.removeprefix(_PYTHONS_OWN)
    return name if is_bare(name) else full


def is_bare(name: str) -> bool:
    """Whether a name has no module, so that classes of several modules may be meant."""
    return name != "" and "." not in name


def error_query(name: str) -> dict[str, str]:
    """The arguments of `Driver.list` for a name that is looked for: one class, or all that a bare name may mean.

    >>> error_query("builtins.KeyError"), error_query("KeyError")
    ({'error_class': 'KeyError'}, {'error_class': 'KeyError', 'error_name': 'KeyError'})
    """
    return {"error_class": stored_error_name(name), **({"error_name": name} if is_bare(name) else {})}


def storable(name: str) -> str:
    """A name as every store can keep it. Where that is not the whole of it, a digest tells it from others."""
    kept = replace_unstorable(name)
    if kept == name and len(name.encode()) <= MAX_NAME_BYTES:
        return name
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{kept.encode()[: MAX_NAME_BYTES - _DIGITS - 1].decode(errors='ignore')}~{digest}"
