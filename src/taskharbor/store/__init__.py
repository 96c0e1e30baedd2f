"""What is asked of a store and changed in it, each once: the client, the operator's views, the command line, the
dashboard and Django stand on this room, and ask a driver nothing themselves.

`session` is how a call reaches the store: access, deadline, retries, and what is unknown when it fails. A question is a
coroutine function of a driver and the present; a change is one of a `StoreCall`.
"""
