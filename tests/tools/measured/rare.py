"""Operations that few models have: convolutions in one dimension, in-place ones on views, overlapping windows."""
import torch
import torch.nn.functional as F
from torch import nn

from harness import case, main

FEW = dict(trains=("all",), ckpt=False)


@case(64)
def softmax_own(e, x):
    return F.softmax(x, -1, dtype=x.dtype)


@case(64)
def stack(e, x):
    return torch.stack([x, e.x(64)], 2)


@case(64, **FEW)
def stack_three(e, x):
    return torch.stack([x, e.x(64), F.silu(x)], 2)


@case()
def maximum_of_two(e):
    a, b = e.x(64, dtype=torch.float32), e.x(64, dtype=torch.float32)
    return torch.maximum(a, b)


# ---- convolutions of (b, 64, 48): 48 places, as many as the cases have tokens
for name, make in {
        "conv1d": lambda: nn.Conv1d(64, 48, 3, padding=1),
        "conv1d_no_bias": lambda: nn.Conv1d(64, 48, 3, padding=1, bias=False),
        "conv1d_groups": lambda: nn.Conv1d(64, 48, 3, padding=1, groups=4),
        "conv1d_depthwise": lambda: nn.Conv1d(64, 64, 5, padding=2, groups=64),
        "conv1d_depthwise_no_bias": lambda: nn.Conv1d(64, 64, 5, padding=2, groups=64, bias=False),
        "conv1d_pointwise": lambda: nn.Conv1d(64, 96, 1)}.items():
    case((64, 48), name=name)(lambda e, x, make=make: e.module(make)(x))


@case((64, 48), **FEW)
def conv1d_with_weight(e, x):
    return F.conv1d(x, e.p(96, 64, 1), e.p(96))


@case((3, 16, 16))
def conv_square(e, x):
    return e.module(lambda: nn.Conv2d(3, 32, 4, stride=4))(x)


@case((3, 16, 16), **FEW)
def conv_square_no_bias(e, x):
    return e.module(lambda: nn.Conv2d(3, 32, 4, stride=4, bias=False))(x)


@case(64)
def matmul_tied(e, x):
    return F.linear(x, e.p(100, 64))


# ---- views
@case(64)
def add_in_view(e, x):
    y = (x * 2.0).view(e.b, e.s, 4, 16).transpose(1, 2)
    y += e.x((4, e.s, 16))
    return y


@case(64)
def over(e, x):
    """In the place of what autograd does not keep: Longformer's queries, divided by a number."""
    y = x * 2.0
    y /= 8.0
    return y


@case(64)
def viewed(e, x):
    """One view read twice: the gradients of both meet at the view, not at what it is of (BigBird's blocks)."""
    y = (x * 2.0).view(e.b, e.s, 4, 16)
    return F.silu(y) + F.gelu(y)


@case(64)
def not_viewed(e, x):
    """The same of a view each, whose gradients meet at what they are of."""
    y = x * 2.0
    return F.silu(y.view(e.b, e.s, 4, 16)) + F.gelu(y.view(e.b, e.s, 4, 16))


@case(64)
def as_strided(e, x):
    """Windows of 16 places that overlap by half (modeling_longformer.py, _chunk)."""
    x = x.view(e.b, e.s // 16, 16, 64)
    size, stride = list(x.shape), list(x.stride())
    size[1], stride[1] = size[1] * 2 - 1, stride[1] // 2
    return x.as_strided(size=size, stride=stride)


@case(64)
def temper(e, x):
    """TRL's logits: the last places of all but one, divided by the temperature in place."""
    y = (x * 2.0)[:, :-1][:, -40:]
    y /= 0.7
    return y


if __name__ == "__main__":
    main()
