"""Finds few-shot scores for which there were too few labelled images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck

FEW_IMAGES = "few images"
"""Some classes have too few images, which are then in every few-shot draw, so that the spread between draws is too
small. `names`: the data set; `high`: shots (labelled images per class); `count`: labelled images that were used;
`limit`: labelled images if all classes had enough."""
SAME_DRAWS = "same draws"
"""All few-shot draws are the same images, because no class has more, so that intervals do not include their spread.
`names`: the data set; `groups`: the numbers of shots."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield results for every data set with too few labelled images: one for each number of shots (images per class)
    that some class lacks, and one for the numbers of shots at which all few-shot samples are the same images. The level
    is WARNING if the number of shots that is shown is among them, otherwise NOTE.

    All samples are the same images if their scores say so, or if more shots used no more images than fewer shots.
    """
    scores, probe = evidence.scores, ["directory", "task", "data"]
    known = scores[(scores["task"] == "fewshot") & scores["num_support"].notna() & scores["shots"].notna()]
    known = known.drop_duplicates([*probe, "shots", "draw"])  # the same draws are used for all horizons and metrics
    no_more = known.groupby([*probe, "draw", "num_support"], observed=True)["shots"].transform("nunique") > 1
    several = known.groupby([*probe, "shots"], observed=True)["draw"].transform("nunique") > 1
    known = known.assign(
        same=several & (no_more | (known["same_images"] == 1)), asked=known["shots"] * known["num_classes"]
    )

    def level(shots: Sequence[int]) -> Level:
        return Level.WARNING if evidence.shots in shots else Level.NOTE

    for data, mine in known.groupby("data", observed=True):
        fewer = mine[mine["num_support"] < mine["asked"]].sort_values(["shots", "num_support"], kind="stable")
        for row in fewer.drop_duplicates("shots").itertuples():
            yield ValidityCheck(
                kind=FEW_IMAGES,
                level=level([int(row.shots)]),
                names=(str(data),),
                high=row.shots,
                count=int(row.num_support),
                limit=row.asked,
            )
        if same := sorted({int(shots) for shots in mine.loc[mine["same"], "shots"]}):
            yield ValidityCheck(
                kind=SAME_DRAWS, level=level(same), names=(str(data),), groups=(("", tuple(map(str, same))),)
            )


CHECK = Check(
    order=6,
    find=find,
    words={
        FEW_IMAGES: "{high:g}-shot scores on {names} used {count} labelled images, not {limit:,.0f}: some "
        "classes have too few "
        "images, which all few-shot samples share.",
        SAME_DRAWS: "All few-shot samples of {groups} shots on {names} are the same images: these intervals do "
        "not contain their spread.",
    },
)
