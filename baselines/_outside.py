"""Adapt networks from outside (timm, torchvision, a user's file) to the interface of this project's models.

The classifier is the nn.Linear (or 1x1 convolution) whose output is the network's output. The classifier is found by
running the network once on the meta device (on the CPU if the network reads values of tensors), and detached:
`features` is the network without it, `head` is the classifier. Images in [-1, 1], with the study's size and number of
channels, are converted in front of the network: to its own normalisation, to colour if it takes no others, and, if they
are too small for it, to the smallest size that it takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from baselines._caches import forget_meta

Make = Callable[[int, int], nn.Module]
"""(input size in pixels, input channels) -> the network, on the default device."""
STEPS = (8, 14, 16, 32, 64)  # a size that a network does not take is rounded up to multiples of these
COLOURS = 3  # channels of a colour image
PROBES = ("meta", "cpu")  # devices on which a network is tried, in order; the first on which it runs is used
REFUSALS = (RuntimeError, ValueError, AssertionError, IndexError, ZeroDivisionError, TypeError, AttributeError)
CONTRACT = ("features", "num_features", "head")  # a network with these members needs no adapter
HALF = (0.5,)  # mean and standard deviation that leave [-1, 1] as it is


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """What was found out about a network from outside: its input and its classifier.

    Attributes:
        input_size, channels: pixels per side, and channels, of the network's input.
        head: path of the classifier among the network's modules ("head.fc"); None if it cannot be detached.
        num_features: width of the features.
        plain: whether the features are the classifier's input; otherwise a function of the network's library computes
            them.
    """

    input_size: int
    channels: int
    head: str | None
    num_features: int
    plain: bool = True


class OwnInput(nn.Module):
    """Converts x_BCHW in [-1, 1] to the input of a network from outside: its channels, its size, and its normalisation,
    (pixel − mean) / std for pixels in [0, 1]."""

    def __init__(self, anatomy: Anatomy, *, mean: Iterable[float], std: Iterable[float]) -> None:
        super().__init__()
        means, stds = torch.tensor([*mean], device="cpu").double(), torch.tensor([*std], device="cpu").double()
        if anatomy.channels != len(means):
            means, stds = (v.mean().expand(anatomy.channels) for v in (means, stds))
        self.input_size, self.channels = anatomy.input_size, anatomy.channels
        shape, device = (1, -1, 1, 1), torch.get_default_device()
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", (0.5 / stds).float().view(shape).to(device), persistent=False)
        self.register_buffer("shift", ((0.5 - means) / stds).float().view(shape).to(device), persistent=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        dtype, size = x_BCHW.dtype, (self.input_size, self.input_size)
        if x_BCHW.shape[1] != self.channels:
            x_BCHW = x_BCHW.expand(-1, self.channels, -1, -1)
        if x_BCHW.shape[-2:] != size:
            x_BCHW = F.interpolate(x_BCHW, size=size, mode="bilinear", align_corners=False)
        return (x_BCHW * self.scale + self.shift).to(dtype)


class Outside(nn.Module):
    """A network from outside as a model: features(x_BCHW) -> x_BD and forward(x_BCHW) -> logits_BK, for x in [-1, 1].

    Args:
        mean, std: mean and standard deviation per channel by which the network's own pixels in [0, 1] are normalised.
        whole: (network, images) -> features x_BD, used unless `anatomy.plain`.
        convert: (weights by name, network) -> weights by the network's names, for older checkpoints; None if there is
            no such function.
        classifiers: paths of the classifier's layers where it cannot be detached; their weights are not loaded.

    Attributes:
        body: the network without its classifier; the whole network if the classifier cannot be detached.
        head: the classifier; None if it cannot be detached. Such a model can be trained and probed, but not fine-tuned.
        own_input: module that converts images to the network's own input.
    """

    def __init__(
        self,
        network: nn.Module,
        anatomy: Anatomy,
        *,
        mean: Iterable[float],
        std: Iterable[float],
        whole: Callable[[nn.Module, Tensor], Tensor] | None = None,
        convert: Callable[[dict[str, Tensor], nn.Module], dict[str, Tensor]] | None = None,
        classifiers: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.num_features, self._path = anatomy.num_features, anatomy.head
        self._whole, self._convert = None if anatomy.plain else whole, convert
        self._classifiers = (anatomy.head,) if anatomy.head else classifiers
        self.own_input = OwnInput(anatomy, mean=mean, std=std)
        head = None if anatomy.head is None else _swapped(network, anatomy.head, nn.Identity())
        self.body = network
        self.head = head  # registered last, so that the last parameter is the classifier's bias

    def features(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.own_input(x_BCHW)
        if self._whole is not None:
            return self._whole(self.body, x_BCHW)
        return self.body(x_BCHW).flatten(1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        if self.head is None:
            return self.body(self.own_input(x_BCHW))
        made = self.body(self.own_input(x_BCHW))
        if not isinstance(made, Tensor):  # networks with further outputs return them only in training
            what = f"in training it makes {type(made).__name__}, not features"
            raise TypeError(f"{what}: switch further outputs off, such as with --set model.aux_logits=False")
        x_BD = made.flatten(1)
        return self.head(x_BD) if isinstance(self.head, nn.Linear) else self.head(x_BD[..., None, None]).flatten(1)

    def original(self) -> nn.Module:
        """Put the classifier back into the network, and return the network as its library builds it. This wrapper must
        not be used afterwards."""
        if self._path is not None and self.head is not None:
            _swapped(self.body, self._path, self.head)
        return self.body

    def load_own(self, tensors: Mapping[str, Tensor]) -> None:
        """Load all weights except the classifier's from the tensors of a checkpoint that was saved by the network's own
        library. If names or shapes differ, the library's function converts them first (timm's resizes position tables).

        Raises:
            ValueError: names or shapes still differ; nothing is loaded.
        """
        prefixes = tuple(f"{name}." for name in self._classifiers)
        state = {name: value for name, value in self.body.state_dict().items() if not name.startswith(prefixes)}

        def compared(found: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
            given = {name: value for name, value in found.items() if not name.startswith(prefixes)}
            wrong = [f"no {name}" for name in sorted(set(state) - set(given))]
            wrong += [f"unknown {name}" for name in sorted(set(given) - set(state))]
            wrong += [
                f"{name} is {tuple(given[name].shape)}, {tuple(state[name].shape)} is needed"
                for name in sorted(set(state) & set(given))
                if given[name].shape != state[name].shape
            ]
            return given, wrong

        given, wrong = compared(tensors)
        if wrong and self._convert is not None:
            with contextlib.suppress(RuntimeError, KeyError, AttributeError, TypeError):  # weights of another network
                given, wrong = compared(self._convert(dict(tensors), self.body))
        if wrong:
            more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
            raise ValueError(f"it does not fit the network: {'; '.join(wrong[:4])}{more}")
        self.body.load_state_dict(given, strict=False)

    def take_over(self, trained: Outside) -> None:
        """Copy the weights of the body from `trained`, the same network for another image size, and fill the classifier
        with zeros.

        Raises:
            ValueError: the classifier could not be detached, or weights depend on the image size and do not fit.
        """
        if self.head is None:
            raise ValueError("its classifier is not one layer at its end")
        self.load_own(trained.body.state_dict())
        with torch.no_grad():
            for parameter in self.head.parameters():
                parameter.zero_()


def sizes_from(image_size: int | tuple[int, int], own: int | None = None) -> list[int]:
    """Return the input sizes to try for images of a size, in order: this size, the size rounded up to multiples of each
    of STEPS, and the network's own size. All are pixels per side.

    Args:
        image_size: side, or (height, width), of the images.
        own: the size that the network was made for; None if unknown.

    Raises:
        ValueError: images are not square.
    """
    if isinstance(image_size, tuple):
        height, image_size = image_size
        if height != image_size:
            raise ValueError("images must be square")
    rounded = sorted(-(-image_size // step) * step for step in STEPS)
    return list(dict.fromkeys((image_size, *rounded, *([own] if own else []))))


def anatomy_of(
    make: Make,
    *,
    sizes: Iterable[int],
    channels: int,
    num_classes: int | None,
    whole: Callable[[nn.Module, Tensor], Tensor] | None = None,
) -> Anatomy:
    """Return what a network's input and classifier are, found by running it once with the first input that it takes.

    The network is run on the meta device; if that fails for every size, on the CPU, because many networks read the
    values of a tensor while they are built.

    Args:
        make: function of (input size in pixels, input channels) that makes the network.
        sizes: input sizes to try, in pixels per side, in order.
        channels: channels of the images; with each size, these are tried first, then colour.
        num_classes: number of outputs that the network must have; None accepts any.
        whole: (network, x_BCHW) -> features, as the network's library defines them; None if it defines none. It is used
            if these features are not the classifier's input (a hidden layer lies between), or if the classifier cannot
            be detached.

    Raises:
        ValueError: the network takes none of the sizes, its output is not logits_BK, or its features cannot be found.
    """
    tried = [(size, given) for size in sizes for given in dict.fromkeys((channels, COLOURS))]
    first: Exception | None = None
    for device in PROBES:
        first = None  # only errors of the last device are reported: those of the meta device may be due to the device
        for size, given in tried:
            try:
                with _probing(device), torch.no_grad():
                    network = make(size, given).eval()
                    _check_patches(network, size)
                    x_BCHW = torch.zeros(2, given, size, size)
                    logits, last = _watched(network, x_BCHW)
            except REFUSALS as error:
                first = first or error
                continue
            _check_logits(logits, num_classes)
            with _probing(device):
                return _dissected(network, x_BCHW, last, whole)
    raise ValueError(f"{type(first).__name__}: {first}") from first


@contextlib.contextmanager
def _probing(device: str) -> Iterator[None]:
    """Make `device` torch's default device inside the `with` block. Afterwards restore the state of its random
    generator, and, if the device is "meta", remove meta tensors from other libraries' caches."""
    try:
        with torch.random.fork_rng(devices=[]), torch.device(device):
            yield
    finally:
        if device == "meta":
            forget_meta()


def adapted(
    make: Make, *, sizes: Iterable[int], image_size: int, channels: int, num_classes: int | None = None
) -> nn.Module:
    """Return a user's network as a model of this project: the network itself if it has the members of CONTRACT, else
    wrapped as `Outside`.

    Args:
        make: function of (input size in pixels, input channels) that makes the network, on the meta device too.
        sizes: input sizes to try; see `sizes_from`.
        image_size, channels: pixels per side, and channels, of images.
        num_classes: number of outputs that the network must have; None accepts any.

    Raises:
        ValueError: the network cannot be adapted; see `anatomy_of`.
    """
    if _keeps_contract(make, image_size, channels):
        return make(image_size, channels)
    anatomy = anatomy_of(make, sizes=sizes, channels=channels, num_classes=num_classes)
    network = make(anatomy.input_size, anatomy.channels)
    return Outside(network, anatomy, mean=getattr(network, "mean", HALF), std=getattr(network, "std", HALF))


def _keeps_contract(make: Make, image_size: int, channels: int) -> bool:
    """Return whether the network that `make(image_size, channels)` builds has the members of CONTRACT, and so needs no
    adapter."""
    for device in PROBES:
        try:
            with _probing(device):
                network = make(image_size, channels)
            return all(hasattr(network, member) for member in CONTRACT)
        except REFUSALS:
            if device == PROBES[-1]:
                raise
    raise AssertionError("unreachable")


def _watched(network: nn.Module, x_BCHW: Tensor) -> tuple[Any, str | None]:
    """Run a network on images; return its output, and the path of the last linear layer or convolution if its output is
    the network's output, else None."""
    made: list[tuple[str, Tensor]] = []
    handles = [
        module.register_forward_hook(lambda _, __, output, path=path: made.append((path, output)))
        for path, module in network.named_modules()
        if path and isinstance(module, nn.Linear | nn.Conv2d)
    ]
    logits = network(x_BCHW)
    for handle in handles:
        handle.remove()
    if not isinstance(logits, Tensor):
        return logits, None
    storage = logits.untyped_storage()._cdata
    paths = [path for path, output in made if output.untyped_storage()._cdata == storage]
    return logits, paths[-1] if paths and made[-1][0] == paths[-1] else None


def _dissected(network: nn.Module, x_BCHW: Tensor, head: str | None, whole: Any) -> Anatomy:
    """Return the anatomy of a network that has been run on x_BCHW. If the classifier can be detached, it is detached
    from `network` on return; otherwise `whole` must compute features.

    Args:
        head: path of the layer that made the network's output; None if there is no such layer.
        whole: (network, x_BCHW) -> features, as the network's library defines them; None if it defines none.

    Raises:
        ValueError: the classifier cannot be detached, and `whole` is None or computes something else than one vector
            per image.
    """
    sizes: dict[str, Any] = {"input_size": int(x_BCHW.shape[-1]), "channels": int(x_BCHW.shape[1])}
    own: Any = None
    if whole is not None:
        with torch.no_grad(), contextlib.suppress(RuntimeError, AttributeError, TypeError):
            own = whole(network, x_BCHW)
    if head is not None:
        layer = _swapped(network, head, nn.Identity())
        width = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels  # type: ignore[union-attr]
        try:
            with torch.no_grad():
                features = network(x_BCHW)
            if features.flatten(1).shape == (2, width):
                if own is None or own.shape == (2, width):
                    return Anatomy(**sizes, head=head, num_features=int(width))  # type: ignore[arg-type]
                return Anatomy(**sizes, head=head, num_features=_width(own), plain=False)
        except (RuntimeError, AttributeError, TypeError):
            pass  # the network uses its classifier for something else too
        _swapped(network, head, layer)
    if own is None:
        raise ValueError(
            "its features cannot be found: its output is not that of a last nn.Linear. Give it features(x_BCHW) -> "
            "x_BD, num_features and head (its classifier)"
        )
    return Anatomy(**sizes, head=None, num_features=_width(own), plain=False)


def _width(features: Any) -> int:
    if not isinstance(features, Tensor) or features.ndim != 2:
        raise ValueError("its output before the classifier is not one vector per image")
    return int(features.shape[1])


def _swapped(network: nn.Module, path: str, new: nn.Module) -> nn.Module:
    """Replace the module at a path of `network` ("head.fc") by `new`, and return the module that was there."""
    parent, _, name = path.rpartition(".")
    owner = network.get_submodule(parent)
    old: nn.Module = getattr(owner, name)
    setattr(owner, name, new)
    return old


def _check_patches(network: nn.Module, size: int) -> None:
    """Raise ValueError if a network's patches do not divide the image size (pixels per side), so that a part of the
    image would be left out."""
    embed: Any = getattr(network, "patch_embed", None)
    ratio = embed.feat_ratio() if hasattr(embed, "feat_ratio") else getattr(embed, "patch_size", 1)
    patch = max(ratio) if isinstance(ratio, tuple | list) else ratio
    if isinstance(patch, int) and patch > 0 and size % patch:
        raise ValueError(f"its patches of {patch} px do not divide {size} px")


def _check_logits(logits: Any, num_classes: int | None) -> None:
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or logits.ndim != 2 or num_classes not in (None, logits.shape[1]):
        raise ValueError(f"of 2 images and {num_classes or 'its own'} classes it makes {found}, not logits_BK")
