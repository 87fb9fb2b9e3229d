"""A task: classify by the nearest class mean of frozen features."""

import numpy as np

from bench.study.record import Score
from bench.tasks.task import Task


def forward_images(*, num_train, num_test, **_):  # optional, for the plan: images through the network
    return num_train + num_test


def evaluate(context, *, data):  # context.features(images_NHWC) -> features_ND
    train, test = context.load(data, "train"), context.load(data, "test")
    features = context.features(train.images_NHWC)
    means_KD = np.stack([features[train.labels_N == k].mean(0) for k in range(train.num_classes)])
    distances_NK = ((context.features(test.images_NHWC)[:, None] - means_KD) ** 2).sum(-1)
    value = float((distances_NK.argmin(1) == test.labels_N).mean())
    stderr = (value * (1 - value) / len(test)) ** 0.5
    return [
        Score(
            task="centroid",
            data=data,
            metric="accuracy",
            value=value,
            stderr=stderr,
            num_test=len(test),
            num_classes=test.num_classes,
            chance=1 / test.num_classes,
        )
    ]


TASK = Task(evaluate=evaluate, forward_images=forward_images)
