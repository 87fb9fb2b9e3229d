"""The requirements of a model: found, built, read, counted, trained, saved, fine-tuned."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.commands.requirement import CheckOptions, Limited, Requirement, require, require_revision
from bench.core.errors import UserError
from bench.study import registry

CLASSES, BATCH, STEPS = 10, 16, 20
TOLERANCE = 1e-4  # relative, between float32 results that are summed in different orders
FEATURES = "has features, logits and a classifier"


def check_model(name: str, options: CheckOptions) -> Iterator[Requirement]:
    """Yield the requirements of a model at one image size: it can be found and built, gives features and logits, its
    MACs can be counted, and it can be trained, saved and fine-tuned."""
    import torch
    from torch.nn import functional as F

    sizes: dict[str, Any] = {
        "image_size": options.image_size,
        "channels": options.channels,
        "num_classes": CLASSES,
    }
    generator = torch.Generator().manual_seed(0)
    x_BCHW = torch.rand(BATCH, sizes["channels"], *2 * [sizes["image_size"]], generator=generator) * 2 - 1
    labels_B = torch.arange(BATCH) % CLASSES
    made: dict[str, Any] = {}

    def build() -> Any:
        torch.manual_seed(0)
        return registry.build_model(name, **sizes)

    def outputs(model: Any) -> Any:
        """Return (logits, targets) for the images `x_BCHW`. The targets are the labels, or what a self-supervised
        network derives from the images. The random numbers are the same in every call."""
        torch.manual_seed(0)
        output = model(x_BCHW)
        return output if isinstance(output, tuple) else (output, labels_B)

    def is_found() -> str:
        family = registry.family_of(name)
        require_revision(family.revision)
        require_revision(registry.model_revision(name))
        names: Any = family.names
        require(
            isinstance(names, tuple) and all(isinstance(one, str) for one in names),
            'names of its family are no tuple of texts, such as ("Mine-8",)',
        )
        strange = [one for one in names if not family.accepts(one)]
        require(not strange, f"the family does not accept {', '.join(strange[:3])}, which it lists")
        registry.check_model(name)
        return f"family {registry.family_label(name)!r}, {registry.source_of(name)}"

    def is_built() -> str:
        made["model"] = model = build().eval()
        size = getattr(getattr(model, "own_input", None), "input_size", sizes["image_size"])
        enlarged = f", enlarged to {size} px" if size != sizes["image_size"] else ""
        return f"{sizes['image_size']} px, {sizes['channels']} channel(s){enlarged}"

    def contract() -> str:
        model = made["model"]
        with torch.no_grad():
            made["features"] = features = model.features(x_BCHW)
        width = int(model.num_features)
        require(features.shape == (BATCH, width), f"features are {tuple(features.shape)}, not {(BATCH, width)}")
        for mode in ("train", "eval"):
            made["logits"], targets = logits, _ = outputs(build().train(mode == "train"))
            wanted = (*targets.shape, CLASSES if targets is labels_B else logits.shape[-1])
            require(logits.shape == wanted, f"logits in mode {mode!r} are {tuple(logits.shape)}, not {wanted}")
        require(bool(features.isfinite().all() and logits.isfinite().all()), "not all values are finite")
        return f"{width} features; the classifier is {_path_of_head(model)}"

    def same_seed() -> str:
        pairs = zip(build().state_dict().items(), build().state_dict().items(), strict=True)
        other = [key for (key, a), (_, b) in pairs if not torch.equal(a, b)]
        require(not other, f"{', '.join(other[:3])} differ: take random numbers from torch only")
        return ""

    def alone() -> str:
        with torch.no_grad():
            one, again = (made["model"].features(x_BCHW[:1]) for _ in range(2))
        require(
            torch.allclose(one, again, rtol=1e-3, atol=1e-4),
            "features of one image differ from call to call: something random is left on in test mode",
        )
        far = float((one - made["features"][:1]).abs().max() / made["features"][:1].abs().max().clamp_min(1e-12))
        require(far < TOLERANCE, f"features of an image depend on the others in its batch (by {far:.1%})")
        return ""

    def counted() -> str:
        from bench.cost import crosscheck, flops

        cost = flops.count(name, **sizes)
        three = crosscheck.crosscheck(name, **sizes)
        counts = {"torch": sum(three.torch.values()), "fvcore": sum(three.fvcore.values())}
        require(not three.differs, f"{sum(three.ours.values()):,} MACs; others count {counts}")
        macs = cost.forward_macs["dense"]
        return f"{cost.params:,} parameters, {macs:,} MACs forward (dense, {CLASSES} classes); {three.sentence()}"

    def sees() -> str:
        from bench.cost import receptive_field

        sight = receptive_field.of_model(name, image_size=sizes["image_size"], channels=sizes["channels"])
        if sentence := sight.sentence(image_size=sizes["image_size"]):
            raise Limited(sentence)
        return ""

    def gradients() -> str:
        model = build().train()
        F.cross_entropy(*outputs(model)).backward()
        trained = {key: value.grad is not None for key, value in model.named_parameters() if value.requires_grad}
        without = [key for key, reached in trained.items() if not reached]
        body = [reached for key, reached in trained.items() if not key.startswith("head.")]
        require(any(body) or not body, f"none for {', '.join(without[:3])}: its body is detached, and learns nothing")
        if without:  # such as a pooler or a mask token: saved and counted, but without effect on the logits
            parts = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
            raise Limited(f"nothing of {parts} reaches the logits: they stay as they are made")
        return f"{sum(1 for _ in model.parameters())} tensors"

    def learns(dtype: str) -> str:
        from bench.study.cell import Recipe
        from bench.train.step import Step

        recipe = Recipe(batch=BATCH, dtype=dtype)
        step = Step(model=build().train(), recipe=recipe, device="cpu")
        losses = [float(step(x_BCHW, labels_B, lr=recipe.lr, seed=seed)) for seed in range(STEPS)]
        require(losses[-1] < losses[0], f"the loss goes from {losses[0]:.3f} to {losses[-1]:.3f}")
        return f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {STEPS} steps on one batch"

    def saved() -> str:
        from safetensors.torch import load_file

        from bench.store import weights

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.safetensors"
            weights.write(path, made["model"].state_dict(), {"model": name})
            torch.manual_seed(1)
            other = registry.build_model(name, **sizes).eval()
            other.load_state_dict(load_file(path))
        require(torch.equal(outputs(other)[0], made["logits"]), "other logits after weights were saved and loaded")
        return ""

    def fine_tuned() -> str:
        from bench.tasks._finetuner import transferred_model

        try:
            fresh = transferred_model(made["model"], name, **{**sizes, "num_classes": 3}).eval()
        except UserError as error:
            raise Limited(error.what) from error
        logits, _ = outputs(fresh)
        require(logits.shape == (BATCH, 3) and not logits.any(), "logits are not those of `head` alone")
        return ""

    def compiles() -> str:
        from bench.train.compiled import compiled

        with torch.no_grad():
            logits, _ = outputs(compiled(made["model"], mode="default"))
        require(torch.allclose(logits, made["logits"], rtol=1e-3, atol=1e-3), "other logits when compiled")
        return ""

    def identity() -> str:
        from bench.study import fingerprint

        code = fingerprint.of_model(name)
        if code is None:
            raise ValueError("its source cannot be read: a change of it would not be noticed")
        return ", ".join(f"{key} {value}" if "version" in value else key for key, value in code.modules.items())

    yield Requirement(what="is found", check=is_found, is_gate=True)
    yield Requirement(what="is built", check=is_built, is_gate=True)
    if not registry.family_of(name).trains:
        return  # features only
    yield Requirement(what=FEATURES, check=contract)
    yield Requirement(what="the same weights for the same seed", check=same_seed)
    yield Requirement(what="treats every image alone in test mode", check=alone, needs=FEATURES)
    yield Requirement(what="can be counted on the meta device", check=counted)
    yield Requirement(what="its features see the whole image", check=sees, needs=FEATURES)
    yield Requirement(what="gradients reach every weight", check=gradients)
    yield Requirement(what="learns", check=lambda: learns("float32"))
    yield Requirement(what="learns in bfloat16", check=lambda: learns("bfloat16"))
    yield Requirement(what="is saved and loaded", check=saved, needs=FEATURES)
    yield Requirement(what="can be fine-tuned", check=fine_tuned)
    if options.compiled:
        yield Requirement(what="compiles", check=compiles, needs=FEATURES)
    yield Requirement(what="changes of these are noticed", check=identity)


def _path_of_head(model: Any) -> str:
    path = getattr(model, "_path", "head")
    return f"`{path}`" if path else "not one layer at its end: it cannot be fine-tuned"
