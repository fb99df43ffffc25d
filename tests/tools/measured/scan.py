"""Operations of recurrences and chunked scans written in Python (models/ops/ops_scan.c)."""
from harness import case, main

import torch
import torch.nn.functional as F

TURNS = ((2, 16), (2, 32), (2, 48), (2, 64), (1, 160), (3, 100))


@case(64)
def pad(e, x):
    return F.pad(x, (0, 8))


@case(64)
def pad_nothing(e, x):
    return F.pad(x, (0, 0))


@case(64)
def set_part(e, x):
    y = F.silu(x)
    y[..., :16] = e.x(16)
    return y


@case(64)
def set_part_of_zeros(e, x):
    y = torch.zeros(e.b, e.s, 96, dtype=e.dt)
    y[..., :64] = F.silu(x)
    return y


@case(64)
def set_constant(e, x):
    y = F.silu(x)
    y[..., :16] = e.const(lambda: torch.empty(e.b, e.s, 16, dtype=e.dt))
    return y


@case(64)
def set_twice(e, x):
    y = F.silu(x)
    y[..., :16] = e.x(16)
    y[..., 16:32] = e.x(16)
    return y


@case(64)
def cat3(e, x):
    return torch.cat([x, e.x(32), e.x(16)], -1)


@case(64)
def tril(e, x):
    return x.tril()


@case(64)
def sum_wide(e, x):
    return x.sum(-1)


@case(64)
def sum_of_16_bit(e, x):
    return F.linear(x, e.p(96, 64)).sum(-1)


@case(64)
def mul_into(e, x):
    return x[:, :, :, None] * e.x(e.b, e.s, 1, 8)


@case(64)
def mul_into_weight(e, x):
    return x[:, :, :, None] * e.p(64, 8)


# ---- a loop whose turns grow with the sequence: 16 tokens each
@case(sizes=TURNS)
def loop(e):
    state = e.x(e.b, 512)
    for i in range(-(-e.s // 16)):
        state = torch.tanh(state)
    return state


@case(sizes=TURNS)
def loop_of_two(e):
    state = e.x(e.b, 512)
    for i in range(-(-e.s // 16)):
        state = F.silu(state) * e.x(e.b, 512)
    return state


if __name__ == "__main__":
    main()
