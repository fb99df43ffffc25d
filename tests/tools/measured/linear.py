"""Matrix multiplies, adapters and 4-bit weights (models/ops/ops_linear.c)."""
from harness import case, fakecuda, main            # first: it stands in for bitsandbytes

import torch
import torch.nn.functional as F
from torch import nn
from transformers.pytorch_utils import Conv1D

SIZES = ((2, 48), (1, 48))


@case(64)
def linear(e, x):
    return F.linear(x, e.p(96, 64))


@case(64)
def linear_bias(e, x):
    return F.linear(x, e.p(96, 64), e.p(96))


@case(64)
def linear_of_heads(e, x):
    return F.linear(x.view(e.b, e.s, 4, 16), e.p(24, 16))


@case(64, sizes=SIZES)
def linear_of_turned(e, x):
    return F.linear(x.view(e.b, e.s, 4, 16).transpose(1, 2), e.p(24, 16))


@case(64, sizes=SIZES)
def linear_of_turned_frozen(e, x):
    return F.linear(x.view(e.b, e.s, 4, 16).transpose(1, 2), e.p(24, 16, frozen=True))


@case(64)
def linear_frozen_bias(e, x):
    return F.linear(x, e.p(96, 64), e.p(96, frozen=True))


@case(64)
def conv1d(e, x):
    return e.module(lambda: Conv1D(96, 64))(x)


@case(64)
def not_leaf(e, x):
    return x @ e.p(96, 64).T


@case(64)
def linear_twice(e, x):
    w = e.p(64, 64)
    return F.linear(F.linear(x, w), w)


@case(64)
def mlp(e, x):
    return F.linear(F.relu(F.linear(x, e.p(96, 64), e.p(96))), e.p(64, 96), e.p(64))


@case(64)
def three_projections(e, x):
    q, k = F.linear(x, e.p(96, 64)), F.linear(x, e.p(96, 64))
    q = q * k
    return q + F.linear(x, e.p(96, 64))


@case(64)
def unused(e, x):
    e.p(96, 64), e.p(96)
    return F.silu(x)


@case(trains=("all",))
def tied(e):
    w = e.p(1000, 64)
    ids = e.const(lambda: torch.zeros(e.b, e.s, dtype=torch.long))
    return F.linear(F.silu(F.embedding(ids, w)), w)


@case(trains=("all",))
def tied_bias(e):
    w, b = e.p(1000, 64), e.p(1000)
    ids = e.const(lambda: torch.zeros(e.b, e.s, dtype=torch.long))
    return F.linear(F.silu(F.embedding(ids, w)), w, b)


# ---- batched products: 4 heads of 16
def heads(e, x):
    return x.view(e.b, e.s, 4, 16).transpose(1, 2)


@case(64, sizes=SIZES)
def scores(e, x):
    return heads(e, x) @ heads(e, e.x(64)).transpose(2, 3)


@case(64, sizes=SIZES)
def scores_of_contiguous(e, x):
    return F.silu(heads(e, x).contiguous()) @ heads(e, e.x(64)).contiguous().transpose(2, 3)


@case(64, sizes=SIZES)
def context(e, x):
    p = F.softmax(e.x(e.b, 4, e.s, e.s), -1)
    return (p @ heads(e, x)).transpose(1, 2).reshape(e.b, e.s, 64)


@case(64, sizes=SIZES)
def with_itself(e, x):
    x = heads(e, x)
    return x @ x.transpose(2, 3)


# ---- stacked experts
@case(64)
def grouped(e, x):
    return torch._grouped_mm(x.view(-1, 64), e.p(4, 64, 96), offs=torch.empty(4, dtype=torch.int32))


@case(64)
def grouped_twice(e, x):
    offs = torch.empty(4, dtype=torch.int32)
    y = F.silu(torch._grouped_mm(x.view(-1, 64), e.p(4, 64, 96), offs=offs))
    return torch._grouped_mm(y, e.p(4, 96, 64), offs=offs)


# ---- NF4 weights
NF4 = dict(plans=({"qlora": "true"}, {"qlora": "true", "double-quant": "false"}, {"qlora": "true", "kbit-prepare": "true"}),
           precisions=("bf16", "bf16-amp"))


def quantised(e, n_in, n_out, bias=False):
    m = fakecuda.Linear4bit(n_in, n_out)
    m.weight = fakecuda.quantize_4bit(torch.empty(n_out, n_in, dtype=torch.bfloat16), e.knobs.get("double-quant") != "false")
    if bias:
        m.bias = nn.Parameter(torch.empty(n_out, dtype=e.dt), requires_grad=False)
    return m


@case(128, trains=("all",), **NF4)
def nf4(e, x):
    return e.const(lambda: quantised(e, 128, 96))(x)


@case(128, trains=("all",), **NF4)
def nf4_twice(e, x):
    return e.const(lambda: quantised(e, 96, 128))(F.silu(e.const(lambda: quantised(e, 128, 96))(x)))


# ---- adapters
class One(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.q_proj = layer

    def forward(self, x):
        return self.q_proj(x)


def adapted(e, layer):
    from peft import LoraConfig, get_peft_model
    m = One(layer)
    m.requires_grad_(False)
    m.is_loaded_in_4bit = isinstance(layer, fakecuda.Linear4bit)
    r = int(e.knobs["lora-r"])
    return get_peft_model(m, LoraConfig(r=r, lora_alpha=2 * r, target_modules=["q_proj"],
                                        lora_dropout=float(e.knobs.get("lora-dropout", 0))))


LORA = [{"lora-r": "8", "lora-targets": "q_proj"}, {"lora-r": "8", "lora-targets": "q_proj", "lora-dropout": "0.1"}]
EVERY = ("fp32", "bf16", "bf16-amp", "amp-bf16")


@case(64, plans=LORA, precisions=EVERY, trains=("all", "weights"))
def lora(e, x):
    return e.peft(lambda: adapted(e, nn.Linear(64, 96, bias=False).to(e.dt)))(x)


@case(64, plans=LORA, precisions=EVERY, trains=("all", "weights"))
def lora_bias(e, x):
    return e.peft(lambda: adapted(e, nn.Linear(64, 96).to(e.dt)))(x)


QLORA = dict(plans=[dict(p, qlora="true") for p in LORA] + [dict(LORA[0], qlora="true", **{"kbit-prepare": "true"})],
             precisions=("bf16", "bf16-amp"), trains=("all", "weights"))


@case(128, **QLORA)
def lora_nf4(e, x):
    return e.peft(lambda: adapted(e, quantised(e, 128, 96)))(x)


@case(128, **QLORA)
def lora_nf4_bias(e, x):
    return e.peft(lambda: adapted(e, quantised(e, 128, 96, True)))(x)


@case(64, plans=LORA, precisions=EVERY, trains=("all", "weights"))
def lora_conv1d(e, x):
    return e.peft(lambda: adapted(e, Conv1D(96, 64).to(e.dt)))(x)


@case(64, plans=LORA[:1], precisions=EVERY, trains=("all", "weights"))
def lora_beside_frozen(e, x):
    y = F.silu(F.linear(x, e.p(64, 64, frozen=True)))
    return e.peft(lambda: adapted(e, nn.Linear(64, 96, bias=False).to(e.dt)))(y)


if __name__ == "__main__":
    main()
