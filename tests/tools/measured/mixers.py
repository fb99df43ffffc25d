"""Mixers and attention that no kernel of PyTorch does in one piece: selective scans, recurrences, windows, landmarks,
blocks, hashes (models/blocks/{selective,scan,window,landmarks,block_sparse}.c and RWKV's layer), as transformers' own
modules run them."""
import torch

from transformers.models.big_bird import modeling_big_bird as big_bird
from transformers.models.falcon_mamba import modeling_falcon_mamba as falcon_mamba
from transformers.models.jamba import modeling_jamba as jamba
from transformers.models.longformer import modeling_longformer as longformer
from transformers.models.mamba import modeling_mamba as mamba
from transformers.models.nystromformer import modeling_nystromformer as nystromformer
from transformers.models.rwkv import modeling_rwkv as rwkv
from transformers.models.yoso import modeling_yoso as yoso
from transformers.models.zamba import modeling_zamba as zamba

from harness import case, main

H, HEADS, STATE = 64, 4, 8
# alone it cannot be made: its __init__ sets buffers that it registers afterwards
falcon_mamba.FalconMambaMixer.init_falcon_mamba_weights = lambda self: None
MIXED = dict(precisions=("fp32", "amp-bf16"))               # what cannot run in pure 16 bit
ENCODER = dict(hidden_size=H, intermediate_size=128, num_attention_heads=HEADS, num_hidden_layers=1, vocab_size=96,
               max_position_embeddings=1024, attention_probs_dropout_prob=0.1)


# ---- selective scans ----

def selective(name, module, cls, config, sizes=((2, 48), (1, 48)), **more):
    def run(e, x):
        wide = dict(mamba_expand=4) if hasattr(getattr(module, config)(), "mamba_expand") else dict(expand=4)
        c = getattr(module, config)(hidden_size=H, num_hidden_layers=1, vocab_size=96, **wide, **more)
        m = e.module(lambda: getattr(module, cls)(c, 0))
        return m.slow_forward(x)
    case(H, name=name, sizes=sizes)(run)


selective("selective_loop", mamba, "MambaMixer", "MambaConfig", ((2, 48), (1, 48), (3, 33)), state_size=STATE,
          use_associative_scan=False)
selective("selective_scan", mamba, "MambaMixer", "MambaConfig", ((2, 48), (1, 48), (3, 33)), state_size=STATE)
selective("selective_loop_normed", falcon_mamba, "FalconMambaMixer", "FalconMambaConfig", state_size=STATE,
          use_associative_scan=False)
selective("selective_scan_normed", falcon_mamba, "FalconMambaMixer", "FalconMambaConfig", state_size=STATE)
selective("selective_loop_jamba", jamba, "JambaMambaMixer", "JambaConfig", mamba_d_state=STATE, mamba_dt_rank=4)


class OfHeads(zamba.ZambaMambaMixer):
    """A_log is made in fp32 whatever the model's type is (its __init__ names the type)."""

    def to(self, dtype):
        log = self.A_log
        super().to(dtype)
        self.A_log = torch.nn.Parameter(torch.empty(log.shape, dtype=torch.float32), requires_grad=log.requires_grad)
        return self


@case(H, sizes=((2, 48), (1, 48)))
def selective_loop_of_heads(e, x):
    c = zamba.ZambaConfig(hidden_size=H, vocab_size=96, mamba_d_state=STATE, mamba_dt_rank=4,
                          n_mamba_heads=2, mamba_expand=4)
    return e.module(lambda: OfHeads(c, 0)).slow_forward(x)


# ---- RWKV's layer ----

@case(128, sizes=((2, 48), (4, 33)))
def rwkv_layer(e, x):
    c = rwkv.RwkvConfig(hidden_size=128, num_hidden_layers=2, vocab_size=96)
    return e.module(lambda: rwkv.RwkvBlock(c, 1))(x)[0]


# ---- attention to some of the keys ----

def divide(a, b, **more):
    """Of two numbers torch.div makes a tensor on the host, which the emulation would count."""
    return a // b if isinstance(a, int) and isinstance(b, int) else torch_div(a, b, **more)


torch_div, torch.div = torch.div, divide


@case(H, sizes=((2, 48), (1, 96), (2, 16)))
def window_of_16(e, x):
    c = longformer.LongformerConfig(attention_window=[16], **ENCODER)
    mask = e.const(lambda: torch.empty(e.b, e.s, dtype=e.dt))
    masked = e.const(lambda: torch.empty(e.b, e.s, dtype=torch.bool))
    m = e.module(lambda: longformer.LongformerSelfAttention(c, 0))
    return m(x, attention_mask=mask, is_index_masked=masked, is_global_attn=False)[0]


def landmarks(name, precisions, **more):
    def run(e, x):
        c = nystromformer.NystromformerConfig(**ENCODER, segment_means_seq_len=e.s, **more)
        mask = e.const(lambda: torch.empty(e.b, 1, 1, e.s, dtype=e.dt))
        return e.module(lambda: nystromformer.NystromformerSelfAttention(c))(x, mask)[0]
    case(H, name=name, precisions=precisions)(run)


landmarks("landmarks_all", ("fp32", "bf16", "amp-bf16"), num_landmarks=48, conv_kernel_size=5)
landmarks("landmarks_of_16", MIXED["precisions"], num_landmarks=16, conv_kernel_size=5)


@case(H, sizes=((2, 48), (1, 96)))
def blocks_of_4(e, x):
    c = big_bird.BigBirdConfig(**ENCODER, block_size=4, num_random_blocks=2)
    make = big_bird.BigBirdModel.create_masks_for_block_sparse_attn
    blocked, band, of_queries, of_keys = [e.const(lambda i=i: make(torch.ones(e.b, e.s), 4)[i]) for i in range(4)]
    m = e.module(lambda: big_bird.BigBirdBlockSparseAttention(c))
    band, of_queries, of_keys = [mask.to(x.dtype) for mask in (band, of_queries, of_keys)]  # BigBirdAttention.forward
    y, _ = m(x, band, of_queries, of_keys, blocked, blocked)
    return y


@case(H, precisions=("fp32", "bf16"))       # its own backward mixes types under autocast
def hashes_expected(e, x):
    c = yoso.YosoConfig(**ENCODER)
    mask = e.const(lambda: torch.empty(e.b, e.s, dtype=e.dt))
    return e.module(lambda: yoso.YosoSelfAttention(c))(x, mask)[0]


if __name__ == "__main__":
    main()
