"""Elementwise operations (models/ops/elementwise.c), and behind them what views.py has: one table for all of them."""
import torch
import torch.nn.functional as F

from harness import case, main

FEW = dict(trains=("all",), ckpt=False)

# ---- functions of one tensor
for name, f in {
        "relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "exp": torch.exp,
        "log": torch.log, "square": lambda x: x.pow(2), "pow": lambda x: torch.pow(x, 3.0), "rsqrt": torch.rsqrt,
        "sqrt": torch.sqrt, "neg": torch.neg, "scale": lambda x: x * 0.5, "softplus": F.softplus, "cos": torch.cos,
        "abs": torch.abs, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "leaky_relu": F.leaky_relu, "elu": F.elu,
        "mish": F.mish, "logsigmoid": F.logsigmoid, "clamp": lambda x: x.clamp(-1, 1),
        "clamp_max": lambda x: x.clamp(max=1), "add_scalar": lambda x: x + 1.0,
        "relu6": F.relu6, "cumsum": lambda x: x.cumsum(-1), "erf": torch.erf}.items():
    case(64, name=name, trains=("all",))(lambda e, x, f=f: f(x))


@case(64, **FEW)
def maximum(e, x):
    return torch.maximum(x, e.const(lambda: torch.empty(1, dtype=e.dt)))


@case(64, **FEW)
def unary_of_slice(e, x):
    return F.silu(x[..., :48])


# ---- functions of two
@case(64)
def add(e, x):
    return x + e.x(64)


@case(64)
def add_weight(e, x):
    return x + e.p(64)


@case(64)
def add_same(e, x):
    return x + x


@case(64)
def add_of_types(e, x):
    return x + e.x(64, dtype=torch.float32)


@case(64)
def add_positions(e, x):
    return x + e.x(1, e.s, 64)


@case(64)
def add_outer(e, x):
    return e.x(e.b, e.s, 1, 16) + e.x(e.b, 1, 24, 16)


@case(64)
def add_in_place(e, x):
    y = F.silu(x)
    y += e.x(64)
    return y


@case(64)
def mul(e, x):
    return x * e.x(64)


@case(64)
def mul_weight(e, x):
    return x * e.p(64)


@case(64)
def mul_same(e, x):
    return x * x


@case(64)
def mul_column(e, x):
    return x * e.x(1)


@case(64)
def mul_constant(e, x):
    return x * e.const(lambda: torch.empty(e.b, e.s, 1, dtype=e.dt))


@case(64)
def mul_of_types(e, x):
    return x * e.x(64, dtype=torch.float32)


@case(64)
def mul_outer(e, x):
    return e.x(e.b, e.s, 1, 16) * e.x(e.b, 1, 24, 16)


@case(64)
def div(e, x):
    return x / e.x(64)


@case(64)
def div_sum(e, x):
    return x / x.sum(-1, keepdim=True)


@case(64)
def div_constant(e, x):
    return x / e.const(lambda: torch.empty(e.b, e.s, 1, dtype=e.dt))


# ---- differences, quotients in place, sums of logarithms
@case(64)
def sub(e, x):
    return x - e.x(64)


@case(64)
def sub_same(e, x):
    return x - x


@case(64)
def sub_weight(e, x):
    return x - e.p(64)


@case(64)
def div_weight(e, x):
    return x / e.p(64)


@case(64, trains=("all",))
def div_in_place(e, x):
    y = F.gelu(x)
    y /= y.sum(-1, keepdim=True)
    return y


@case(64, trains=("all",), precisions=("bf16",))
def div_in_place_of_types(e, x):
    y = F.gelu(x)
    y /= y.float().sum(-1, keepdim=True)
    return y


@case(64, trains=("all", "inputs"))
def log_add(e, x):
    return torch.logsumexp(torch.stack([x, e.x(64)]), 0)


@case(64, trains=("all",))
def log_add_shifted(e, x):
    return torch.logsumexp(torch.stack([x + 1.0, e.x(64) + 2.0]), 0)


@case(64, trains=("all",))
def at_least(e, x):
    return torch.maximum(x, torch.tensor(1e-6, dtype=x.dtype))


@case(64)
def divergence(e, x):
    a, b = F.log_softmax(x, -1), F.log_softmax(e.x(64), -1)
    return F.kl_div(a, b, reduction="none", log_target=True)


@case(64)
def dropout_in_place(e, x):
    return F.dropout(F.silu(x), 0.1, e.train, inplace=True)


@case(64)
def dropout_residual(e, x):
    return x + F.dropout(F.silu(x), 0.1, e.train)


# ---- chains in which one's result is another's only reader
@case(64)
def gate(e, x):
    a, b = x.chunk(2, -1)
    return F.gelu(a) * b


@case(64)
def swish_by_hand(e, x):
    return x * torch.sigmoid(1.702 * x)


@case(64)
def rms_by_hand(e, x):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return e.p(64) * h.to(x.dtype)


@case(64)
def normalised(e, x):
    return (x - x.mean(-1, keepdim=True)) / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


# ---- types
@case(64)
def to_fp32(e, x):
    return x.float()


@case(64)
def to_bf16(e, x):
    return x.to(torch.bfloat16)


@case(64)
def there_and_back(e, x):
    return F.silu(x.float()).to(e.dt)


# ---- one tensor used more than once
@case(64)
def residual(e, x):
    return x + F.silu(x)


@case(64)
def three_uses(e, x):
    return F.silu(x) + F.gelu(x) + torch.tanh(x)


@case(64)
def residual_of_slice(e, x):
    return x[..., :48] + x[..., 16:]


@case(64)
def weight_twice(e, x):
    w = e.p(64)
    return (x * w) * w


import views  # noqa: E402, F401 (its cases come behind these)

if __name__ == "__main__":
    main()
