"""The Brier score as a loss: the squared distance between the predicted probabilities and the label's."""

from bench.train.losses.loss import Loss, targets_of


def make(recipe):  # -> (logits_BK, labels_B or targets_BK) -> mean of the batch
    return lambda logits_BK, labels: (
        (logits_BK.float().softmax(1) - targets_of(logits_BK, labels)).square().sum(1).mean()
    )


LOSS = Loss(make=make)
