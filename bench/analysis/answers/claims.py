"""The paper's claims about scaling beside what these records say, and what the paper's own Table 6 says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from bench.analysis import published
from bench.analysis.answers.answer import Answer
from bench.analysis.answers.ask import NAMES, answers
from bench.analysis.answers.order import OVERTAKES, SHRINKS
from bench.analysis.answers.ratio import QUESTION as RATIO
from bench.analysis.answers.saturation import QUESTION as SATURATION
from bench.analysis.compare import Verdict
from bench.analysis.evidence import Evidence
from bench.core.formatting import significant

CHEAPER, SHRINKING, UNSATURATED, DATA = "cheaper", "shrinking", "unsaturated", "data"
TEXT = {
    CHEAPER: "ViT uses about 2 to 4 times less compute than ResNet for the same performance.",
    SHRINKING: "Hybrids outperform ViT at small compute; their advantage shrinks for larger models.",
    UNSATURATED: "ViT does not saturate within the range tried.",
    DATA: "ResNets do better with fewer pre-training images; ViT overtakes them with more.",
}
WHERE = {CHEAPER: "Section 4.4, Figure 5", SHRINKING: "Section 4.4, Figure 5", UNSATURATED: "Section 4.4, Figure 5",
         DATA: "Section 4.3, Figure 4"}  # fmt: skip
STATED = (2.0, 4.0)  # times less compute


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper. `verdict`: "yes" these records bear it out, "no" they contradict it, or "cannot tell".

    `paper`, `paper_sentence`: the same question put to the paper's own Table 6 (None where that cannot answer it).
    """

    claim: str
    where: str
    verdict: Verdict
    sentence: str
    paper: Verdict | None = None
    paper_sentence: str = ""


def claims(evidence: Evidence) -> list[Claim]:
    """Every claim with its verdict from `evidence` and from the paper's own numbers."""
    own, theirs = judge(tuple(answers(evidence))), _published()
    return [
        Claim(claim=TEXT[name], where=WHERE[name], verdict=own[name][0], sentence=own[name][1],
              paper=None if name == DATA else theirs[name][0],
              paper_sentence="Figure 4 has no table." if name == DATA else theirs[name][1])
        for name in TEXT
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _published() -> dict[str, tuple[Verdict, str]]:
    return judge(tuple(answers(published.evidence())))


def judge(found: tuple[Answer, ...]) -> dict[str, tuple[Verdict, str]]:
    """Verdict and sentence for every claim."""
    judged: dict[str, tuple[Verdict, str]] = dict.fromkeys(TEXT, ("cannot tell", "No points for this question."))
    for answer in found:
        if answer.question == RATIO and _about(answer.subject, "vit", "resnet"):
            judged[CHEAPER] = _cheaper(answer)
        elif answer.question == SHRINKS:
            judged[SHRINKING] = answer.verdict, answer.sentence
        elif answer.question == SATURATION and _about(answer.subject, "vit"):
            flipped: dict[Verdict, Verdict] = {"yes": "no", "no": "yes", "cannot tell": "cannot tell"}
            judged[UNSATURATED] = flipped[answer.verdict], answer.sentence
        elif answer.question.startswith(OVERTAKES["images"].split("{")[0]):
            judged[DATA] = answer.verdict, answer.sentence
    return judged


def _cheaper(answer: Answer) -> tuple[Verdict, str]:
    """Borne out if ResNet needs more and the interval meets what was stated; contradicted if it lies outside."""
    if answer.estimate is None or answer.low is None or answer.high is None or answer.verdict != "yes":
        return "cannot tell", answer.sentence
    more_is_resnet = answer.unit.lower().startswith(NAMES["resnet"])
    meets = answer.low <= STATED[1] and answer.high >= STATED[0]
    inside = STATED[0] <= answer.estimate <= STATED[1]
    stated = f"The stated {significant(STATED[0])} to {significant(STATED[1])} times "
    stated += "contain the estimate." if inside else "overlap the interval." if meets else "lie outside the interval."
    return ("yes" if more_is_resnet and meets else "no"), f"{answer.sentence} {stated}"


def _about(subject: str, *kinds: str) -> bool:
    names = subject.lower().split(" and ")
    return len(names) == len(kinds) and all(any(n.startswith(NAMES[k]) for n in names) for k in kinds)
