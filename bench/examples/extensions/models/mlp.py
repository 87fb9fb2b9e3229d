"""A model family: multi-layer perceptrons on pixels."""

from vit.model_family import ModelFamily


def accepts(name):  # every valid name, listed or not
    return name.startswith("MLP-") and name[4:].isdigit()


def build(name, *, image_size, channels, num_classes):  # ValueError: which sizes are allowed
    from torch import nn

    class MLP(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.num_features = width
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, width), nn.ReLU())
            self.head = nn.Linear(width, num_classes)

        def features(self, x_BCHW):  # -> x_BD, input of the probes; images are in [-1, 1]
            return self.body(x_BCHW)

        def forward(self, x_BCHW):  # -> logits_BK
            return self.head(self.features(x_BCHW))

    return MLP(int(name[4:]))


FAMILY = ModelFamily(
    label="MLP",  # in figures
    names=("MLP-32",),  # shown in lists and suggestions
    accepts=accepts,
    build=build,
)
