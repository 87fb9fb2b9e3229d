from bench.api import *  # noqa: F403
