"""Attention kernels and PyTorch's choice between them (models/ops/ops_attn.c)."""
import torch
import torch.nn.functional as F

from harness import case, main

ALL = dict(precisions=("fp32", "bf16", "fp16", "amp-bf16"))


def turned(e, x, heads, s=None):
    return x.view(e.b, s or e.s, heads, -1).transpose(1, 2)


def merged(e, y):
    return y.transpose(1, 2).reshape(e.b, y.shape[2], -1)


def qkv(e, x, heads=4, kv=4, d=16, dv=None):
    return turned(e, x, heads), turned(e, e.x(kv * d), kv), turned(e, e.x(kv * (dv or d)), kv)


def attend(e, q, k, v, **kw):
    """Queries, keys and values have names until the module returns."""
    return merged(e, F.scaled_dot_product_attention(q, k, v, **kw))


@case(64, sizes=((2, 48), (1, 300)), **ALL)
def sdpa(e, x):
    return attend(e, *qkv(e, x), is_causal=True)


@case(64, **ALL)
def sdpa_one_tensor(e, x):
    x = turned(e, x, 4)
    return attend(e, x, x, x)


@case(64, sizes=((2, 48), (1, 48)), **ALL)
def sdpa_grouped(e, x):
    return attend(e, *qkv(e, x, 4, 2), is_causal=True, enable_gqa=True)


@case(1056, **ALL)
def sdpa_grouped_wide(e, x):
    """Heads of more than 256 elements: the math kernel, for grouped heads in 16 bit too."""
    return attend(e, *qkv(e, x, 4, 2, 264), is_causal=True, enable_gqa=True)


@case(64, sizes=((2, 48), (1, 48)), **ALL)
def sdpa_broadcast(e, x):
    return attend(e, *qkv(e, x, 4, 1), is_causal=True)


@case(64, sizes=((2, 48), (2, 50)), **ALL)
def sdpa_bool_mask(e, x):
    mask = e.const(lambda: torch.empty(e.b, 1, e.s, e.s, dtype=torch.bool))
    return attend(e, *qkv(e, x), attn_mask=mask)


@case(64, sizes=((2, 48), (2, 50)), **ALL)
def sdpa_float_mask(e, x):
    mask = e.const(lambda: torch.empty(e.b, 1, e.s, e.s, dtype=e.dt))
    return attend(e, *qkv(e, x), attn_mask=mask)


@case(64, sizes=((2, 48), (2, 50)), **ALL)
def sdpa_learned_bias(e, x):
    return attend(e, *qkv(e, x), attn_mask=e.x(e.b, 4, e.s, e.s))


@case(48, **ALL)
def sdpa_odd(e, x):
    return attend(e, *qkv(e, x, d=12), is_causal=True)


@case(48, **ALL)
def sdpa_odd_mask(e, x):
    mask = e.const(lambda: torch.empty(e.b, 1, e.s, e.s, dtype=torch.bool))
    return attend(e, *qkv(e, x, d=12), attn_mask=mask)


@case(24, sizes=((2, 48), (1, 48)), **ALL)
def sdpa_very_odd(e, x):
    return attend(e, *qkv(e, x, d=6))


@case(640, **ALL)
def sdpa_wide(e, x):
    return attend(e, *qkv(e, x, d=160), is_causal=True)


@case(640, sizes=((2, 48), (1, 300)), **ALL)
def sdpa_wide_mask(e, x):
    mask = e.const(lambda: torch.empty(e.b, 1, e.s, e.s, dtype=torch.bool))
    return attend(e, *qkv(e, x, d=160), attn_mask=mask)


@case(384, **ALL)
def sdpa_96_mask(e, x):
    mask = e.const(lambda: torch.empty(e.b, 1, e.s, e.s, dtype=torch.bool))
    return attend(e, *qkv(e, x, d=96), attn_mask=mask)


@case(64, **ALL)
def sdpa_narrow_values(e, x):
    return attend(e, *qkv(e, x, dv=8), is_causal=True)


@case(64, **ALL)
def sdpa_wide_values(e, x):
    return attend(e, *qkv(e, x, dv=32), is_causal=True)


@case(64, **ALL)
def sdpa_dropout(e, x):
    return attend(e, *qkv(e, x), is_causal=True, dropout_p=0.1 if e.train else 0.0)


@case(64, **ALL)
def sdpa_of_contiguous(e, x):
    q = F.silu(turned(e, x, 4).contiguous())
    k = F.silu(turned(e, e.x(64), 4).contiguous())
    v = F.silu(turned(e, e.x(64), 4).contiguous())
    return attend(e, q, k, v, is_causal=True)


@case(64, **ALL)
def sdpa_not_merged(e, x):
    return F.scaled_dot_product_attention(*qkv(e, x), is_causal=True)


@case(64, **ALL)
def sdpa_cross(e, x):
    k, v = (turned(e, e.x(e.b, 2 * e.s, 64), 4, 2 * e.s) for _ in range(2))
    return attend(e, turned(e, x, 4), k, v)


# ---- the flash_attn package: 16-bit copies are transformers' (modeling_flash_attention_utils.py) until it returns, padded heads
# FlashAttnFunc's, and both have gone when the output is laid out
def padded(q, k, v):
    pad = (-q.shape[-1]) % 8
    if pad:
        q, k, v = F.pad(q, (0, pad)), F.pad(k, (0, pad)), F.pad(v, (0, pad))
    return torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, v, 0.0, True, False, scale=1.0)[0]


def kernel(e, query, key, value):
    if query.dtype == torch.float32:
        dt = e.half or torch.bfloat16
        query, key, value = query.to(dt), key.to(dt), value.to(dt)
    v = F.pad(value, (0, query.shape[-1] - value.shape[-1])) if value.shape[-1] < query.shape[-1] else value
    return padded(query, key, v)[..., :value.shape[-1]]


def flash(e, query, key, value):
    return kernel(e, query, key, value).transpose(1, 2).contiguous().view(e.b, e.s, -1)


@case(64, sizes=((2, 48), (1, 300)), plans=({"attn": "flash"},), **ALL)
def flash_package(e, x):
    q, k, v = qkv(e, x)
    return flash(e, q, k, v)


@case(64, plans=({"attn": "flash"},), **ALL)
def flash_grouped(e, x):
    q, k, v = qkv(e, x, 4, 2)
    return flash(e, q, k, v)


@case(48, plans=({"attn": "flash"},), **ALL)
def flash_odd(e, x):
    q, k, v = qkv(e, x, d=12)
    return flash(e, q, k, v)


@case(64, plans=({"attn": "flash"},), **ALL)
def flash_narrow_values(e, x):
    q, k, v = qkv(e, x, dv=8)
    return flash(e, q, k, v)


@case(640, plans=({"attn": "flash"},), **ALL)
def flash_wide(e, x):
    q, k, v = qkv(e, x, d=160)
    return flash(e, q, k, v)


if __name__ == "__main__":
    main()
