"""An optimizer, sign descent: every weight moves by the learning rate against the sign of its gradient, with decoupled
weight decay."""

from bench.train.optimizers.optimizer import Optimizer


def make(weights, recipe):  # -> a torch optimizer; its state is tensors and numbers, which checkpoints hold
    import torch

    class Signs(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure=None):  # type: ignore[override]
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(p.grad.sign(), alpha=group["lr"])

    return Signs(weights, {"lr": recipe.lr, "weight_decay": recipe.weight_decay})


OPTIMIZER = Optimizer(make=make, moments=lambda recipe: 0)
