"""How much the shared work of the few-shot probe saves: `python -m bench.cost.fewshot`.

The same question is answered twice per support set, in turn: which class does every test image get under each of 25
ridge strengths? Once by one decomposition (`bench.tasks`), once by solving and scoring each strength separately with
scikit-learn's Ridge. Both must give the same classes. Two ratios: against solutions that each standardise the images
for themselves, and against solutions that find their design matrices ready made. Time is that of the processor, so that
a busy machine changes little. Features are made up, with a spectrum that decays as a power law.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np

from bench.tasks._ridge import BIAS_FEATURE, SupportSet, choose_ridge, decompose
from bench.tasks._sweep import Sweep
from bench.tasks.fewshot import RIDGES, SHOTS

CLASSES, FEATURES, TEST_IMAGES, DRAWS = 100, 768, 10_000, 3


@dataclass
class Seconds:
    """Processor time by what it went into; `prepare` is one standardisation per support set."""

    shared: float = 0.0
    leave_one_out: float = 0.0
    prepare: float = 0.0
    separate: float = 0.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cost.fewshot", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--test-images", type=int, default=TEST_IMAGES)
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--decay", type=float, default=0.5, help="of the features' standard deviations (default 0.5)")
    args = parser.parse_args(argv)
    spent, differ = measure(args.test_images, args.features, args.classes, args.draws, decay=args.decay)
    count = len(RIDGES) * len(SHOTS) * args.draws
    print(f"{count} ridge solutions scored on {args.test_images:,} images x {args.features} features x {args.classes}:")
    separately = spent.separate + len(RIDGES) * spent.prepare
    print(f"  shared                      {spent.shared:7.2f} s   (leave-one-out besides: {spent.leave_one_out:.2f} s)")
    print(f"  each separately             {separately:7.2f} s   {separately / spent.shared:5.1f} times as long")
    print(f"  without standardising each  {spent.separate:7.2f} s   {spent.separate / spent.shared:5.1f} times as long")
    print(f"  {differ:,} of {count * args.test_images:,} predicted classes differ")
    return 0 if not differ else 1


def measure(test_images: int, features: int, classes: int, draws: int, *, decay: float) -> tuple[Seconds, int]:
    """(seconds, how many predicted classes differ) over all shots and draws, the two ways alternating."""
    rng = np.random.default_rng(0)
    scale_D = (1.0 + np.arange(features)) ** -decay
    turn_DD = np.linalg.qr(rng.normal(size=(features, features)))[0]
    centres_KD = rng.normal(size=(classes, features))

    def sample(labels_N: np.ndarray) -> np.ndarray:
        x_ND = (centres_KD[labels_N] + rng.normal(size=(len(labels_N), features))) * scale_D
        return (x_ND @ turn_DD * 10 + 3).astype(np.float32)

    spent, differ = Seconds(), 0
    test_MD = sample(rng.integers(0, classes, test_images))
    started = time.process_time()
    sweep = Sweep(test_MD)
    spent.shared += time.process_time() - started
    for _ in range(draws):
        for shots in SHOTS:
            labels_N = np.repeat(np.arange(classes), shots)
            support_ND = sample(labels_N)
            shared_LM, support = _shared(support_ND, labels_N, sweep, classes=classes, spent=spent)
            started = time.process_time()
            choose_ridge(support, RIDGES)
            spent.leave_one_out += time.process_time() - started
            differ += int((_separate(support_ND, labels_N, test_MD, classes=classes, spent=spent) != shared_LM).sum())
    return spent, differ


def _shared(
    support_ND: np.ndarray, labels_N: np.ndarray, sweep: Sweep, *, classes: int, spent: Seconds
) -> tuple[np.ndarray, SupportSet]:
    started = time.process_time()
    support = decompose(support_ND, labels_N, num_classes=classes)
    found_LM = sweep.predict(support, RIDGES)
    spent.shared += time.process_time() - started
    return found_LM, support


def _separate(
    support_ND: np.ndarray, labels_N: np.ndarray, test_MD: np.ndarray, *, classes: int, spent: Seconds
) -> np.ndarray:
    from sklearn.linear_model import Ridge

    started = time.process_time()
    raw_ND = support_ND.astype(np.float64)
    mean_D, std_D = raw_ND.mean(0), raw_ND.std(0) + 1e-5

    def design(x_ND: np.ndarray) -> np.ndarray:
        return np.concatenate([(x_ND - mean_D) / std_D, np.full((len(x_ND), 1), BIAS_FEATURE)], axis=1)

    train, test, targets = design(raw_ND), design(test_MD), 2.0 * np.eye(classes)[labels_N] - 1.0
    spent.prepare += time.process_time() - started
    started = time.process_time()
    found = [Ridge(alpha=r, fit_intercept=False).fit(train, targets).predict(test).argmax(1) for r in RIDGES]
    spent.separate += time.process_time() - started
    return np.stack(found)


if __name__ == "__main__":
    sys.exit(main())
