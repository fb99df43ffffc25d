"""Convolutions, batch and group norms, pools over [b, channels, height, width] (models/ops/ops_conv.c)."""
from harness import case, main

import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.bit.modeling_bit import WeightStandardizedConv2d
from transformers.models.convnext.modeling_convnext import ConvNextDropPath, ConvNextLayerNorm

IMAGE = (8, 14, 14)


def conv(*args, **kw):
    return lambda: nn.Conv2d(*args, **kw)


for name, make in {
        "conv": conv(8, 12, 3, padding=1), "conv_no_bias": conv(8, 12, 3, padding=1, bias=False),
        "conv_stride": conv(8, 12, 3, stride=2, padding=1), "conv_groups": conv(8, 12, 3, padding=1, groups=4),
        "conv_depthwise": conv(8, 8, 7, padding=3, groups=8), "conv_1x1": conv(8, 24, 1),
        "conv_dilated": conv(8, 12, 3, padding=2, dilation=2), "conv_patches": conv(8, 32, 7, stride=7),
        "conv_tall": conv(8, 12, (3, 1), padding=(1, 0)), "conv_strides": conv(8, 12, 3, stride=(2, 1), padding=1),
        "conv_standardized": lambda: WeightStandardizedConv2d(8, 12, 3, padding=1)}.items():
    case(IMAGE, name=name)(lambda e, x, make=make: e.module(make)(x))


# ---- channels last in memory
@case((14, 14, 8))
def conv_channels_last(e, x):
    return e.module(conv(8, 12, 3, padding=1))(x.permute(0, 3, 1, 2))


@case((14, 14, 8))
def conv_channels_last_1x1(e, x):
    return e.module(conv(8, 12, 1))(x.permute(0, 3, 1, 2))


# ---- norms
# (the emulation makes the input's gradient whether it is needed or not)
@case(IMAGE, trains=("all", "inputs"))
def batch_norm(e, x):
    return e.module(lambda: nn.BatchNorm2d(8))(x)


@case(IMAGE)
def group_norm(e, x):
    return e.module(lambda: nn.GroupNorm(4, 8))(x)


@case(IMAGE)
def channel_norm(e, x):
    return e.module(lambda: ConvNextLayerNorm(8, data_format="channels_first"))(x)


# ---- pools
@case(IMAGE)
def max_pool(e, x):
    return F.max_pool2d(x, 3, 2, 1)


@case(IMAGE)
def avg_pool(e, x):
    return F.avg_pool2d(x, 2, 2)


@case(IMAGE)
def global_pool(e, x):
    return x.mean([2, 3])


@case(IMAGE)
def adaptive_pool(e, x):
    return F.adaptive_avg_pool2d(x, 1)


# ---- shapes
@case(IMAGE)
def pad(e, x):
    return F.pad(x, (0, 2, 0, 2))


@case(IMAGE)
def cat_two(e, x):
    return torch.cat([x, e.x((4, 14, 14))], 1)


@case(IMAGE)
def cat_five(e, x):
    parts = [x]
    for i in range(4):
        parts.append(F.relu(e.x((4, 14, 14))))
    return torch.cat(parts, 1)


@case(IMAGE)
def tokens(e, x):
    return F.silu(x.flatten(2).transpose(1, 2))


# ---- together
class ConvBN(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.normalization, self.activation = nn.Conv2d(8, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU()

    def forward(self, x):
        return self.activation(self.normalization(self.convolution(x)))


@case(IMAGE)
def conv_bn_act(e, x):
    return e.module(ConvBN)(x)


@case(IMAGE)
def two_blocks(e, x):
    y = e.module(ConvBN)(x)
    return e.module(lambda: nn.Conv2d(12, 8, 1))(y) + x


@case(IMAGE)
def drop_path(e, x):
    return x + e.module(lambda: ConvNextDropPath(0.1))(F.relu(x))


if __name__ == "__main__":
    main()
