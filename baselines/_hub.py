"""Find out whether the Hugging Face hub can be reached, and keep its library (huggingface_hub) from trying if not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def reachable() -> bool:
    """Return whether the Hugging Face hub can be asked: offline mode is off, and a proxy is set or the hub's host name
    resolves."""
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
    """Put the library of the Hugging Face hub into offline mode inside the `with` block, so that it reads this
    machine's disk only, if the hub's host name does not resolve and there is no proxy. Otherwise the library would,
    without a network, try six times in half a minute for each file."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = not reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
