"""The names of `bench.core.files`, where they were."""

from bench.core.files import (
    append_line,
    dump_json,
    explain,
    make_directory,
    read_json,
    read_lines,
    sync_directory,
    write_bytes,
    write_json,
    write_text,
)  # fmt: skip

__all__ = [
    "append_line", "dump_json", "explain", "make_directory", "read_json", "read_lines", "sync_directory", "write_bytes",
    "write_json", "write_text",
]  # fmt: skip
