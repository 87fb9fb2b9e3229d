"""Where one family overtakes another, and where hybrids stop helping. Nothing is extrapolated."""

from __future__ import annotations

import numpy as np

from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Verdict
from bench.analysis.laws import COMPUTE, Law
from bench.core.formatting import count, flops, signed
from bench.stats import bootstrap
from bench.stats.crossing import Crossing, crossing
from bench.stats.intervals import t_quantile

OVERTAKES = {COMPUTE: "At what compute does {0} overtake {1}?", "images": "At how many images does {0} overtake {1}?"}
SHRINKS = "Does the hybrids' advantage shrink with compute?"
STOPS = "Where do hybrids stop helping?"
MIN_LEADS = 4


def overtakes(first: Law, second: Law) -> Answer:
    """Where the first (ViT) begins to be ahead of the second (ResNet)."""
    found = crossing(first.within, second.within, names=(first.family, second.family))
    question = OVERTAKES[first.axis].format(first.family, second.family)
    return _crossed(question, f"{first.family} and {second.family}", first, second, found, wanted=first.family)


def stops(vit: Law, hybrid: Law) -> Answer:
    """Where plain ViT catches up with the hybrid."""
    found = crossing(vit.within, hybrid.within, names=(vit.family, hybrid.family))
    return _crossed(STOPS, f"{hybrid.family} and {vit.family}", vit, hybrid, found, wanted=vit.family)


def _crossed(question: str, subject: str, first: Law, second: Law, found: Crossing, *, wanted: str) -> Answer:
    basis, n = f"{first.basis}; {second.basis}; inside the common range", first.runs + second.runs
    show = flops if first.axis == COMPUTE else (lambda x: f"{count(x)} images")
    known = _reservations(first, second)
    if found.x is None or found.low is None or found.high is None:
        sentence = f"{found.reason[:1].upper()}{found.reason[1:]}.{known}"
        return Answer(question=question, subject=subject, verdict="cannot tell", sentence=sentence, n=n, basis=basis)
    verdict: Verdict = "yes" if found.overtakes == wanted else "no"
    sentence = f"At {show(found.x)} [{show(found.low)}, {show(found.high)}]; beyond, {found.overtakes} is ahead."
    if verdict == "no":
        sentence = f"The other way round. {sentence}"
    sentence += known
    return Answer(
        question=question, subject=subject, verdict=verdict, sentence=sentence, estimate=found.x, low=found.low,
        high=found.high, unit="FLOP" if first.axis == COMPUTE else "images", n=n, basis=basis,
    )  # fmt: skip


def _reservations(first: Law, second: Law) -> str:
    """What the comparison of two laws must be read with: unequal compute over images, laws that miss their marks."""
    text = ""
    if first.axis != COMPUTE:
        text = f" Not at equal compute: {_budget(first)}; {_budget(second)}."
    missed = [law for law in (first, second) if law.lack_of_fit is not None and law.lack_of_fit.fails]
    return text + "".join(f" The law of {law.family} {law.lack_of_fit.clause}." for law in missed if law.lack_of_fit)


def _budget(law: Law) -> str:
    """What every point of a curve over images was trained with: "ViT 72.7 GFLOPs over 32,000 images seen"."""
    spent = sorted({(point.train_flops, point.images_seen) for point in law.places})
    ends = [spent[0], *spent[-1:]] if len(spent) > 1 else spent
    return f"{law.family} {' to '.join(f'{flops(work)} over {count(seen)} images seen' for work, seen in ends)}"


def shrinks(vit: Law, hybrid: Law) -> Answer:
    """The trend of the hybrids' lead over compute: every hybrid on the frontier against ViT's frontier at its compute.

    ViT's frontier is interpolated between its points (in log compute); hybrids outside its range are left out.
    """
    subject = f"{hybrid.family} and {vit.family}"
    x, leads = _leads(vit, hybrid)
    if len(x) < MIN_LEADS:
        sentence = f"{len(x)} hybrids lie in {vit.family}'s range of compute; a trend needs {MIN_LEADS}."
        return Answer(question=SHRINKS, subject=subject, verdict="cannot tell", sentence=sentence)
    (slope, intercept), covariance = np.polyfit(np.log10(x), leads, 1, cov=True)
    noise = 0.0 if vit.noise is None or hybrid.noise is None else np.hypot(vit.noise, hybrid.noise)
    known = noise / (np.log10(x).std() * np.sqrt(len(x)))  # what the noise of single points makes of the slope
    half = t_quantile(len(x) - 2, bootstrap.LEVEL) * max(float(np.sqrt(covariance[0, 0])), known)
    low, high = -slope - half, -slope + half
    verdict: Verdict = "yes" if low > 0 else "no" if high < 0 else "cannot tell"
    first, last = int(np.argmin(x)), int(np.argmax(x))
    shown = f"{signed(leads[first])} points at {flops(x[first])}, {signed(leads[last])} at {flops(x[last])}"
    change = f"{signed(slope)} points per tenfold compute [{signed(-high)}, {signed(-low)}]"
    sentence = f"{hybrid.family} − {vit.family}: {shown}; {change}."
    if verdict == "cannot tell":
        sentence = f"No change beyond the interval. {sentence}"
    elif verdict == "yes" and intercept + slope * np.log10(x.min()) <= 0:
        verdict, sentence = "cannot tell", f"There is no advantage to shrink. {sentence}"
    return Answer(
        question=SHRINKS, subject=subject, verdict=verdict, sentence=sentence, estimate=float(-slope), low=low,
        high=high, unit="accuracy per tenfold compute", n=len(x),
        basis=f"line through {len(x)} hybrids' leads over {vit.family}'s interpolated frontier; t interval",
    )  # fmt: skip


def _leads(vit: Law, hybrid: Law) -> tuple[np.ndarray, np.ndarray]:
    """Compute and lead in accuracy of every hybrid inside ViT's range."""
    (x, y), (at, own) = vit.frontier, hybrid.frontier
    inside = (at >= x[0]) & (at <= x[-1])
    between = np.interp(np.log(at[inside]), np.log(x), y)
    return at[inside], between - own[inside]
