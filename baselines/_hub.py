"""Make the Hugging Face hub's library read only this machine's disk where the hub cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def reachable() -> bool:
    """Return whether the hub may be asked: its host name resolves, or a proxy is set, and offline mode is off."""
    import socket
    import urllib.parse
    import urllib.request

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if urllib.request.getproxies():
        return True
    try:
        socket.getaddrinfo(urllib.parse.urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return False
    return True


@contextmanager
def without_a_hub_that_nobody_knows() -> Iterator[None]:
    """Put the hub's library into offline mode inside the `with` block if the hub's host name does not resolve and there
    is no proxy. Otherwise, without a network, the library would try six times in half a minute for each file."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = not reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
