"""Our step and timm's network in the loop that everybody writes: bfloat16 autocast, torch.compile, fused AdamW,
channels-last images and weights for convolutions; from equal weights, on equal images, in windows that alternate."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from tools.first_contact.plan import (
    CLASSES,
    FEW_STEPS,
    LOSSES,
    LOSSES_WITHIN,
    MEMORY_WITHIN,
    MODE,
    MORE_RACES,
    NAMED,
    RACES,
    RATES,
    SMALL_NAMED,
    SMALL_RACES,
    SMALL_RATES,
    TABLE3_STEPS,
    WINDOW_SECONDS,
    WINDOWS,
    Line,
    beside_expected,
)
from tools.first_contact.steps import joules


class Contest:
    """Ours and timm's network of one model, with equal weights; the batch that they train on."""

    def __init__(self, name: str, *, side: int, batch: int, device: str) -> None:
        import torch
        from torch import nn

        from bench.core import environment
        from bench.study import registry
        from bench.study.cell import Recipe
        from bench.train import precision

        precision.set_up(threads=environment.cores())
        self.name, self.side, self.batch, self.device = name, side, batch, device
        self.dtype = "bfloat16" if device.startswith("cuda") else "float32"
        self.recipe = Recipe(batch=batch, lr=1e-4, dtype=self.dtype, shift=0)
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"image_size": side, "channels": 3, "num_classes": CLASSES}
        self.ours = registry.build_model(name, **sizes)
        for weight_name, weight in self.ours.named_parameters():
            if weight_name.startswith("head.") and weight_name.endswith("weight"):
                nn.init.normal_(weight, std=0.02)  # zeros would hide the body
        self.weights = {key: value.clone() for key, value in self.ours.state_dict().items()}
        generator = torch.Generator().manual_seed(0)
        pixels_NHWC = torch.randint(0, 256, (batch, side, side, 3), dtype=torch.uint8, generator=generator)
        self.pixels_BCHW = pixels_NHWC.to(device).permute(0, 3, 1, 2)
        self.labels_B = torch.arange(batch, device=device) % CLASSES

    def our_step(self, *, mode: str = MODE) -> tuple[Callable[[], Any], Any]:
        from bench.train import modes
        from bench.train.rehearsal import rehearse
        from bench.train.step import Step

        model = self.ours.to(self.device).train()
        with modes.switched(mode if self.device.startswith("cuda") else "off"):
            step = Step(model=model, recipe=self.recipe, device=self.device)
        if step.compiles:
            rehearse(step, self.pixels_BCHW, self.labels_B)

        def once() -> Any:
            return step(self.pixels_BCHW, self.labels_B, lr=self.recipe.lr, seed=0)

        return once, step

    def plain_step(self) -> Callable[[], Any]:
        """timm's network in the loop that everybody writes."""
        import torch
        from torch.nn import functional as F

        from bench.train.batches import to_input
        from tools.race import builders

        self.ours.load_state_dict(self.weights)
        model, same_function = builders.build(
            "timm", self.ours, name=self.name, image_size=self.side, num_classes=CLASSES
        )
        assert same_function
        has_convolutions = any(isinstance(m, torch.nn.Conv2d) and m.kernel_size != (16, 16) for m in model.modules())
        layout = torch.channels_last if has_convolutions else torch.contiguous_format
        model = model.to(self.device).train().to(memory_format=layout)
        x_BCHW = to_input(self.pixels_BCHW.permute(0, 2, 3, 1)).contiguous(memory_format=layout)
        forward = torch.compile(model, dynamic=False) if self.device.startswith("cuda") else model
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=self.recipe.lr,
            betas=self.recipe.betas,
            weight_decay=self.recipe.weight_decay,
            fused=True,
        )
        kind = self.device.partition(":")[0]

        def once() -> Any:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(kind, dtype=torch.bfloat16, enabled=self.dtype == "bfloat16"):
                loss = F.cross_entropy(forward(x_BCHW), self.labels_B)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.recipe.clip, foreach=True)
            optimizer.step()
            return loss.detach().float()

        return once


def race(given: argparse.Namespace, name: str, *, only_warm: bool) -> Iterator[Line]:
    """Rates, memory, joules and losses of both."""
    import torch

    from bench.core.device import release, synchronise, timed
    from bench.cost import flops, peaks
    from bench.plan import resources

    everything = SMALL_RACES if given.cpu_rehearsal else {**RACES, **MORE_RACES}
    side, batch = everything[name]
    device, on_gpu = given.device, given.device.startswith("cuda")
    contest = Contest(name, side=side, batch=batch, device=device)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    ours, step = contest.our_step()
    our_losses = [ours().clone() for _ in range(1 if only_warm else FEW_STEPS)]
    synchronise(device)
    prepared = {"ours": time.perf_counter() - started}
    peak = {"ours": torch.cuda.max_memory_allocated() if on_gpu else 0}
    yield {
        "what": f"{name}: ours prepared",
        "seconds": round(prepared["ours"], 1),
        "mode": step.run_as.how,
        "attention": list(step.run_as.kernels()),
        "micro_batch": step.micro_batch,
        "outcome": "pass" if not on_gpu or step.run_as.how == MODE else "fail",
    }
    if only_warm:
        del ours, step
        release(device)
        if on_gpu:
            contest.our_step(mode="default")[0]()
            release(device)
    else:
        counted = flops.count(name, image_size=side, channels=3, num_classes=CLASSES, activations=True)
        predicted = resources.state_bytes(contest.recipe, counted.params, ranks=1)
        predicted += batch * (counted.activation_bytes or 0) // (2 if on_gpu else 1)
        said: Line = {"what": f"{name}: memory", "predicted_gb": round(predicted / 1e9, 2)}
        if on_gpu:  # a replayed graph allocates nothing: dropped, it is recorded anew, and counted
            release(device)
            torch.cuda.reset_peak_memory_stats()
            ours()
            synchronise(device)
            allocated = torch.cuda.max_memory_allocated()
            said |= {
                "allocated_gb": round(allocated / 1e9, 2),
                "over_predicted": round(allocated / predicted, 3),
                "expected": f"within {MEMORY_WITHIN:.0%}",
                "as_written_gb": round(peak["ours"] / 1e9, 2),  # the search for what fits goes by this one
                "reserved_gb": round(torch.cuda.memory_reserved() / 1e9, 2),
            }
        yield said
        yield from gradients(contest, step, name)
        timed(ours, device=device, calls=2)
        seconds = timed(ours, device=device, calls=2 if given.cpu_rehearsal else 20)
        rate = batch * (2 if given.cpu_rehearsal else 20) / seconds
        yield {"what": f"{name}: ours, before timm is there", "images_per_second": round(rate, 1)}
    held = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    theirs: Callable[[], Any] | None = None
    try:
        theirs = contest.plain_step()
        their_losses = [theirs().clone() for _ in range(1 if only_warm else FEW_STEPS)]
        synchronise(device)
        yield {
            "what": f"{name}: timm prepared",
            "seconds": round(time.perf_counter() - started, 1),
            "allocated_gb": round((torch.cuda.max_memory_allocated() - held) / 1e9, 2) if on_gpu else None,
        }
    except Exception as error:
        theirs = None
        yield {"what": f"{name}: timm", "value": f"{type(error).__name__}: {error}"[:300], "outcome": "fail"}
    if only_warm:
        return
    if theirs is not None:
        pairs = [(float(a), float(b)) for a, b in zip(our_losses, their_losses, strict=True)]
        apart = max(abs(a - b) for a, b in pairs) / pairs[0][1]
        yield {
            "what": f"{name}: {LOSSES}",
            "value": round(apart, 5),
            "first": [round(x, 5) for x in pairs[0]],
            "last": [round(x, 5) for x in pairs[-1]],
            "outcome": "pass" if apart <= LOSSES_WITHIN else "fail",
        }
    calls: dict[str, Callable[[], Any]] = {"ours": ours} | ({"timm": theirs} if theirs is not None else {})
    windows: dict[str, list[float]] = {key: [] for key in calls}
    spent: dict[str, list[float]] = {key: [] for key in calls}
    images: dict[str, int] = dict.fromkeys(calls, 0)
    number = {}
    for key, call in calls.items():
        timed(call, device=device, calls=3)
        seconds = timed(call, device=device, calls=3) / 3
        number[key] = max(1, round((0.2 if given.cpu_rehearsal else WINDOW_SECONDS) / seconds))
    train_flops = counted.train_flops_per_image["dense"]
    top = peaks.peak(contest.dtype, device=device, threads=torch.get_num_threads())
    for turn in range(2 if given.cpu_rehearsal else WINDOWS):
        for key in list(calls) if turn % 2 == 0 else reversed(list(calls)):
            before = joules() if on_gpu else None
            seconds = timed(calls[key], device=device, calls=number[key])
            after = joules() if on_gpu else None
            windows[key].append(number[key] * batch / seconds)
            images[key] += number[key] * batch
            if before is not None and after is not None:
                spent[key].append(after - before)
        if turn + 1 in (2, WINDOWS):  # early, in case time runs out, and at the end
            for key, rates in windows.items():
                rate = statistics.median(rates)
                yield {
                    "what": f"{name}: {key}",
                    "images_per_second": round(rate, 1),
                    "lowest": round(min(rates), 1),
                    "highest": round(max(rates), 1),
                    "windows": len(rates),
                    "batch": batch,
                    "mfu_of_the_architecture": round(rate * train_flops / top.flops_per_second, 4),
                    "expected": beside_expected(name, key, rate),
                    "joules_per_image": round(sum(spent[key]) / images[key], 5) if spent[key] else None,
                }
            if theirs is not None:
                ratios = [a / b for a, b in zip(windows["ours"], windows["timm"], strict=True)]
                middle, least, most = (round(f(ratios), 3) for f in (statistics.median, min, max))
                yield {"what": f"{name}: ours over timm", "value": middle, "lowest": least, "highest": most}
    if on_gpu:
        from bench.plan.calibrate import launched

        host, alone = launched(ours, device=device)
        yield {"what": f"{name}: a recorded step", "host_ms": round(1e3 * host, 2), "gpu_ms": round(1e3 * alone, 2)}
    del calls, call, ours, theirs, step
    release(device)
    if on_gpu:
        for mode, said in (("default", "plainly compiled"), ("off", "as it is written")):
            once, _ = contest.our_step(mode=mode)
            timed(once, device=device, calls=3)
            seconds = timed(once, device=device, calls=10) / 10
            yield {"what": f"{name}: ours, {said}", "images_per_second": round(batch / seconds, 1)}
            del once
            release(device)


def gradients(contest: Contest, step: Any, name: str) -> Iterator[Line]:
    """Those of the step that is timed, tensor by tensor, against the network as it is written, at the size that is
    timed: compilers choose other kernels for small ones."""
    import torch

    pixels_BCHW, labels_B = contest.pixels_BCHW, contest.labels_B

    def found(made: Any) -> dict[str, Any]:
        made.gradients_that_fit(pixels_BCHW, labels_B, seed=0)
        named = made.model.named_parameters()
        kept = {key: weight.grad.detach().float().clone() for key, weight in named if weight.grad is not None}
        made.clear()
        return kept

    given = found(step)
    plain = contest.our_step(mode="off")[1]
    wanted = found(plain)
    apart = {key: float((given[key] - right).norm() / right.norm().clamp(min=1e-12)) for key, right in wanted.items()}
    worst = sorted(apart, key=lambda key: -apart[key] if apart[key] == apart[key] else -float("inf"))[:3]
    flat, right = (torch.cat([side[key].flatten() for key in wanted]).double() for side in (given, wanted))
    cosine = float(torch.nn.functional.cosine_similarity(flat, right, dim=0))
    good = given.keys() == wanted.keys() and all(apart[key] <= 0.15 for key in apart) and cosine >= 0.995
    yield {
        "what": f"{name}: gradients against the network as it is written",
        "cosine": round(cosine, 6),
        "worst": {key: round(apart[key], 4) for key in worst},
        "tensors": len(apart),
        "outcome": "pass" if good else "fail",
    }


def mixed(given: argparse.Namespace, name: str) -> Iterator[Line]:
    """Our rate and gradients where Inductor does what `bench.train.compiled` decides against, or the other way round:
    kernels of sums over rows and over columns at once."""
    from torch._inductor import config

    from bench.core.device import timed
    from bench.train import compiled

    if not given.device.startswith("cuda") or not hasattr(config.triton, "mix_order_reduction"):
        yield {"what": f"{name}: mixed reductions", "value": "nothing is compiled, or torch has none", "outcome": "n/a"}
        return
    chosen, key = compiled.options, "triton.mix_order_reduction"
    other = not chosen(MODE).get(key, config.triton.mix_order_reduction)
    compiled.options = lambda mode: chosen(mode) | {key: other}  # type: ignore[assignment]
    side, batch = (SMALL_RACES if given.cpu_rehearsal else RACES)[name]
    contest = Contest(name, side=side, batch=batch, device=given.device)
    ours, step = contest.our_step()
    yield from gradients(contest, step, name)
    number = 2 if given.cpu_rehearsal else 20
    timed(ours, device=given.device, calls=5)
    said = "with" if other else "without"
    for _ in range(3):
        rate = batch * number / timed(ours, device=given.device, calls=number)
        yield {"what": f"{name}: {said} mixed reductions", "images_per_second": round(rate, 1)}


def rates(given: argparse.Namespace, name: str) -> Iterator[Line]:
    """Losses at Table 3's learning rate, weight decay and clipping, of the same batch again and again: bfloat16 as it
    is raced, beside float32 as it is written."""
    import dataclasses

    from bench.core.device import release
    from bench.suites import _paper

    side, batch = (SMALL_RATES if given.cpu_rehearsal else RATES)[name]
    row = _paper.row_for(name, "ImageNet-21k")
    steps = 4 if given.cpu_rehearsal else TABLE3_STEPS
    losses: dict[str, list[float]] = {}
    for dtype, mode in (("bfloat16", MODE), ("float32", "off")):
        contest = Contest(name, side=side, batch=batch, device=given.device)
        clip = 1.0 if row.model.startswith("ViT") else contest.recipe.clip
        contest.recipe = dataclasses.replace(
            contest.recipe, lr=row.lr, weight_decay=row.weight_decay, clip=clip, dtype=dtype
        )
        _, step = contest.our_step(mode=mode)
        found = [
            step(contest.pixels_BCHW, contest.labels_B, lr=row.lr * min(1.0, (at + 1) / (steps / 2)), seed=at).clone()
            for at in range(steps)
        ]
        losses[dtype] = [float(loss) for loss in found]
        del step, contest
        release(given.device)
    ours, wanted = losses["bfloat16"], losses["float32"]
    good = all(loss == loss and loss < 2 * wanted[0] for loss in ours)
    good = good and abs(ours[-1] - wanted[-1]) <= 0.1 * wanted[0]
    yield {
        "what": f"{name}: losses at Table 3's rate",
        "lr": row.lr,
        "weight_decay": row.weight_decay,
        "bfloat16": [round(loss, 4) for loss in ours[:: max(1, steps // 8)]],
        "float32": [round(loss, 4) for loss in wanted[:: max(1, steps // 8)]],
        "outcome": "pass" if good else "fail",
    }


def named(given: argparse.Namespace, name: str) -> Iterator[Line]:
    """A network of timm's, by its name, in our step: prepared, right, and how fast."""
    from bench.core.device import timed

    side, batch = (SMALL_NAMED if given.cpu_rehearsal else NAMED)[name]
    contest = Contest(name, side=side, batch=batch, device=given.device)
    started = time.perf_counter()
    ours, step = contest.our_step()
    ours()
    yield {"what": f"{name}: prepared", "seconds": round(time.perf_counter() - started, 1), "mode": step.run_as.how}
    yield from gradients(contest, step, name)
    calls = 2 if given.cpu_rehearsal else 20
    rate = batch * calls / timed(ours, device=given.device, calls=calls)
    yield {"what": f"{name}: beside other work", "images_per_second": round(rate, 1)}
