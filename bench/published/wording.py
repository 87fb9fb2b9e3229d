"""Texts and computations that questions about published networks share."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.comparisons import unreplicated_noise
from bench.analysis.finding import Counts, Finding, Reason, Unit, Verdict
from bench.published.matched import LEVEL, TEST_IMAGES, Gain
from bench.stats.intervals import SEEDS

TOP1, REAL = "ImageNet top-1", "ReaL"
CHANCE = (
    "Intervals hold chance in the test images (95 %) and what single trainings may owe to chance: 0.12 in log-odds of "
    "an error, the spread between seeds of a few-shot probe in a public replication."
)


def in_other_metrics(ratios: Sequence[tuple[str, float | None]]) -> str:
    """Return a text with the ratio by every metric except the first, such as "; ReaL labels 1.0 ×, CIFAR-10 2.5 ×"; ""
    if there is only one metric. `ratios` are (metric, ratio) pairs; a ratio of None is shown as "–"."""
    said = (
        f"{metric}{' labels' if metric == REAL else ''} {'–' if ratio is None else f'{ratio:.1f} ×'}"
        for metric, ratio in ratios[1:]
    )
    return f"; {', '.join(said)}" if len(ratios) > 1 else ""


def difference(
    question: str, subject: tuple[str, ...], estimate: float, half: float, *about: Gain, main: bool
) -> Finding:
    """Return the finding on whether a difference of accuracies is beyond chance, where each network was trained only
    once.

    Args:
        question: name of the question.
        subject: what the finding is about.
        estimate: the difference of accuracies, in [-1, 1].
        half: half-width of its 95 % interval, which contains chance in the test images only.
        about: the gains that are the finding's evidence; the first one's accuracies determine the chance between
            trainings.
        main: whether the comparison is controlled.
    """
    margin = unreplicated_noise((about[0].fewer + about[0].more) / 2)
    decided = abs(estimate) > max(half, margin)
    why = Reason.UNREPLICATED if abs(estimate) > half else Reason.WITHIN_INTERVAL
    return Finding(
        question=question,
        subject=subject,
        verdict=(Verdict.YES if estimate > 0 else Verdict.NO) if decided else Verdict.CANNOT_TELL,
        reasons=() if decided else (why,),
        quantity="accuracy difference",
        unit=Unit.SHARE,
        estimate=estimate,
        low=estimate - half,
        high=estimate + half,
        level=LEVEL,
        n=Counts(models=len(about), test_images=TEST_IMAGES),
        margin=margin,
        excluded=(SEEDS,),
        main=main,
        evidence=about,
    )
