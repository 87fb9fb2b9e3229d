from bench.flops import *  # noqa: F403
