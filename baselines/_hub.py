"""What adapters share about the Hugging Face hub: looking on this disk alone where there is no network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def reachable() -> bool:
    """Whether the hub may be asked: its address is known here, or to a proxy, and nobody has forbidden it."""
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
    """Let the hub's library look on this disk alone where nobody knows the hub's address, as without a network: it
    would ask for each file six times in half a minute. A proxy may know it."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = not reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
