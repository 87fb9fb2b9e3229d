"""Greet somebody."""

from bench.core import cli
from bench.core.errors import command


@command
def main(argv: list[str] | None = None) -> int:
    p = cli.parser("vit-bench greet", __doc__ or "", "examples:\n  vit-bench greet --name Ada")
    p.add_argument("--name", default="you")
    print(f"Hello, {p.parse_args(argv).name}.")
    return 0
