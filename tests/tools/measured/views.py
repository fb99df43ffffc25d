"""Views, reductions, softmax, norms and lookups (models/ops/{views,softmax,norms,lookups}.c): ops.py writes them."""
import torch
import torch.nn.functional as F

from transformers.models.nemotron.modeling_nemotron import NemotronLayerNorm1P

from harness import case

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
