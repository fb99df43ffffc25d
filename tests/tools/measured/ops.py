"""Elementwise operations, views, reductions, norms and lookups (models/ops/{elementwise,views,softmax,norms,lookups}.c)."""
import torch
import torch.nn.functional as F

from transformers.models.nemotron.modeling_nemotron import NemotronLayerNorm1P

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


# ---- views
@case(64)
def heads(e, x):
    return x.view(e.b, e.s, 4, 16).transpose(1, 2)


@case(64)
def heads_and_back(e, x):
    return x.view(e.b, e.s, 4, 16).transpose(1, 2).transpose(1, 2).reshape(e.b, e.s, 64)


@case(64)
def heads_silu_and_back(e, x):
    return F.silu(x.view(e.b, e.s, 4, 16).transpose(1, 2)).transpose(1, 2).reshape(e.b, e.s, 64)


@case(64)
def merge_contiguous(e, x):
    y = x.view(e.b, e.s, 4, 16).transpose(1, 2).contiguous()
    return y.transpose(1, 2).reshape(e.b, e.s, 64)


@case(64)
def clone(e, x):
    return x.clone()


@case(64)
def slice_(e, x):
    return x[..., :48]


@case(64)
def split(e, x):
    a, b = x.chunk(2, -1)
    return a * b


@case(64)
def split_three(e, x):
    a, b, c = F.silu(x).split([32, 16, 16], -1)
    return torch.cat([a * 2.0, b * c], -1)


@case(64)
def cat(e, x):
    return torch.cat([x, e.x(32)], -1)


@case(64)
def cat_of_types(e, x):
    return torch.cat([x, e.x(64, dtype=torch.float32)], -1)


@case(64)
def cat_same(e, x):
    return torch.cat([x, x], -1)


@case(64)
def cat_tokens(e, x):
    return torch.cat([x, e.x(64)], 1)


@case(64)
def cat_frozen(e, x):
    return torch.cat([x, e.const(lambda: torch.empty(e.b, e.s, 32, dtype=e.dt))], -1)


# ---- reductions and expansions
@case(64)
def mean(e, x):
    return x.mean(-1, keepdim=True)


@case(64)
def mean_of_square(e, x):
    return x.pow(2).mean(-1, keepdim=True)


@case(64)
def sum_(e, x):
    return x.sum(-1, keepdim=True)


@case(64)
def sum_of_heads(e, x):
    return x.view(e.b, e.s, 4, 16).sum(2)


@case(64)
def expand(e, x):
    return x[:, :, None, :].expand(e.b, e.s, 3, 64)


@case(64)
def expand_copy(e, x):
    return x[:, :, None, :].expand(e.b, e.s, 3, 64).reshape(e.b, e.s, 192)


@case(64)
def expand_weight(e, x):
    return x + e.p(1, 1, 64).expand(e.b, -1, -1)


# ---- softmax, dropout, masks
@case(64)
def softmax(e, x):
    return F.softmax(x, -1)


@case(64, precisions=("fp32", "bf16", "fp16", "amp-bf16", "amp-fp16"))
def softmax_fp32(e, x):
    return F.softmax(x, -1, dtype=torch.float32)


@case(64)
def log_softmax(e, x):
    return F.log_softmax(x, -1, dtype=x.dtype)


@case(64)
def dropout(e, x):
    return F.dropout(x, 0.1, e.train)


@case(64)
def dropout_0(e, x):
    return F.dropout(F.silu(x), 0.0, e.train)


@case(64)
def masked_fill(e, x):
    return x.masked_fill(e.x(e.b, e.s, 64, dtype=torch.bool), 0.0)


@case(64)
def masked_fill_in_place(e, x):
    return F.gelu(x).masked_fill_(e.x(e.b, e.s, 64, dtype=torch.bool), 0.0)


# ---- norms
@case(64)
def layer_norm(e, x):
    return F.layer_norm(x, (64,), e.p(64), e.p(64))


@case(64)
def layer_norm_no_bias(e, x):
    return F.layer_norm(x, (64,), e.p(64))


@case(64, trains=("all",))
def layer_norm_plain(e, x):
    return F.layer_norm(x, (64,))


@case(64)
def layer_norm_heads(e, x):
    return F.layer_norm(x.view(e.b, e.s, 4, 16), (16,), e.p(16), e.p(16)).view(e.b, e.s, 64)


@case(64)
def layer_norm_of_used(e, x):
    return x + F.layer_norm(x, (64,), e.p(64), e.p(64))


@case(64)
def layer_norm_1p(e, x):
    return e.module(lambda: NemotronLayerNorm1P(64))(x)


# ---- lookups; from 3073 ids on the derivative sorts them
def ids(e, vocab=1000):
    return e.const(lambda: torch.zeros(e.b, e.s, dtype=torch.long))


@case(sizes=((2, 48), (2, 1536), (2, 1537)), trains=("all",))
def embedding(e):
    return F.embedding(ids(e), e.p(1000, 64))


@case(trains=("all",))
def embedding_twice(e):
    w = e.p(1000, 64)
    return F.embedding(ids(e), w) + F.embedding(ids(e), w)


@case(64)
def rows(e, x):
    return x.view(-1, 64)[torch.empty(2 * e.b * e.s, dtype=torch.long)]


@case(64)
def index_select(e, x):
    return x.view(-1, 64).index_select(0, torch.empty(2 * e.b * e.s, dtype=torch.long))


@case(64)
def topk(e, x):
    return x.topk(8, -1)[0]


if __name__ == "__main__":
    main()
