"""Put hashes of the labels and groups that a user gives for a folder of images (--labels, --groups) into the name of
the data set, so that every process uses the same. A group is a set of images that belong together, such as those of one
patient."""

from __future__ import annotations

from dataclasses import replace

from bench.core.errors import UserError
from bench.data.load import data_set, parse
from bench.study.names import DataName
from bench.study.options import What, Where


def name_groups(what: What, where: Where) -> tuple[What, tuple[str, ...]]:
    """Return the options, with the labels and groups of each data set in its name, and sentences for the user on how
    they were read.

    Raises:
        UserError: --labels or --groups without a folder of images; see `bench.data.labels` and `bench.data.groups`.
    """
    notes = list[str]()
    tables = {"file": where.groups, "table": where.labels, "columns": where.label_columns}

    def named(text: str) -> str:
        name, plain = parse(text)[0], DataName.parse(text.partition("@")[0])
        if (grouped := data_set(plain.base).grouped) is None:
            return text
        option, said = grouped(DataName.parse(name).option, root=where.data_root, **tables)
        notes.extend(f"{name}: {sentence}" for sentence in said)
        return str(replace(plain, option=option)) + "".join(text.partition("@")[1:])

    data, downstream = (given and tuple(map(named, given)) for given in (what.data, what.downstream))
    asked = {"--groups": where.groups, "--labels": where.labels, "--label-columns": where.label_columns}
    if (flag := next((flag for flag, given in asked.items() if given), "")) and not notes:
        raise UserError(f"{flag} is about a folder of images, and none is named.", "Name it: --data folder:photos.")
    return replace(what, data=data, downstream=downstream), tuple(dict.fromkeys(notes))
