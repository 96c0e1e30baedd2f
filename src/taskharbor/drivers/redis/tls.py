"""TLS: the options of a DSN, the context made from them, and what to do about a handshake that failed.

The server's certificate and its name are checked unless the DSN says otherwise.
"""

from __future__ import annotations

import ssl
from typing import Any

OPTIONS = frozenset({"ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname"})
_VERIFY = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
CHECKS = ("required", "optional", "none")

_TRUST = "name the CA that signed the server's certificate with ssl_ca_certs=/path/to/ca.pem"
_NAME = "give the host that the certificate names, or ssl_check_hostname=0 to trust it for any host"
_FILES = "ssl_ca_certs, ssl_certfile and ssl_keyfile name files in PEM that this process can read"
_OWN = "if the server asks for a certificate, name one that it trusts with ssl_certfile and ssl_keyfile"
_PORT = "does the server speak TLS at this port?"
# A part of the error text, what to do, and whether waiting cannot help; the first match counts.
_ADVICE = (
    ("not valid for", _NAME, True),
    ("CERTIFICATE_VERIFY_FAILED", _TRUST, True),
    ("No such file", _FILES, True),
    ("Permission denied", _FILES, True),
    ("NO_CERTIFICATE_OR_CRL_FOUND", _FILES, True),
    ("PEM", _FILES, True),
    ("KEY_VALUES_MISMATCH", _FILES, True),
    ("CERTIFICATE_REQUIRED", _OWN, True),
    ("alert", _OWN, False),
    ("reset by peer", _OWN, False),
    ("no connection within", _PORT, False),
    ("WRONG_VERSION_NUMBER", _PORT, False),
    ("RECORD_LAYER_FAILURE", _PORT, False),
)


def settings(given: dict[str, str], tls: bool) -> tuple[tuple[str, Any], ...]:
    """The TLS settings among the options of a DSN; ValueError that says what was expected."""
    found: dict[str, Any] = {name: value for name, value in given.items() if name in OPTIONS}
    if not tls:
        if found:
            raise ValueError(f"{min(found)}: expected TLS with it; write rediss:// (a Cluster: tls=1), or leave it out")
        return ()
    checks = found.setdefault("ssl_cert_reqs", "required")
    if checks not in CHECKS:
        raise ValueError(f"ssl_cert_reqs: expected {', '.join(CHECKS)}, got {checks[:40]!r}")
    text = found.get("ssl_check_hostname", "0" if checks == "none" else "1")
    if text not in {"0", "1"}:
        raise ValueError(f"ssl_check_hostname: expected 0 or 1, got {text[:40]!r}")
    found["ssl_check_hostname"] = text == "1"
    return tuple(found.items())


def context(given: tuple[tuple[str, Any], ...]) -> ssl.SSLContext:
    """A TLS context from the result of `settings`; OSError if a file cannot be read or is not PEM. It is made for each
    connection, so that certificates may be renewed while the process runs."""
    options = dict(given)
    made = ssl.create_default_context()
    made.check_hostname = options["ssl_check_hostname"]
    made.verify_mode = _VERIFY[options["ssl_cert_reqs"]]
    if "ssl_certfile" in options or "ssl_keyfile" in options:
        made.load_cert_chain(options.get("ssl_certfile") or "", options.get("ssl_keyfile"))
    if "ssl_ca_certs" in options:
        made.load_verify_locations(options["ssl_ca_certs"])
    return made


def advice(error: BaseException) -> tuple[str, bool]:
    """What to do about an error of a connection with TLS, after a semicolon, and whether waiting cannot help."""
    text = str(error)
    return next(((f"; {what}", lasting) for mark, what, lasting in _ADVICE if mark in text), ("", False))
