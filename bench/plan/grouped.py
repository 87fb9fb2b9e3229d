"""Labels and groups of images become part of the names of their sets, so that every process takes them alike."""

from __future__ import annotations

from dataclasses import replace

from bench.core.errors import UserError
from bench.data.load import data_set, parse
from bench.study.names import DataName
from bench.study.options import What, Where


def name_groups(what: What, where: Where) -> tuple[What, tuple[str, ...]]:
    """The study, in which a set is named with its labels and groups where it has any, and a note on each.

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
