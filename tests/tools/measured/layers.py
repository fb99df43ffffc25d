"""Whole layers of decoders (models/families/text/): what the shared blocks do not hold, the names and sums around them,
as transformers' own modules run them."""
import torch

from transformers.models.biogpt import modeling_biogpt as biogpt
from transformers.models.gpt2 import modeling_gpt2 as gpt2
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.opt import modeling_opt as opt

from harness import case, main

H = 64
PLANS = ({"attn": "eager"}, {"attn": "sdpa"})
SIZES = dict(hidden_size=H, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=96)


def mask(e):
    """Additive; SDPA gets none, the layer says that it is causal."""
    return e.const(lambda: torch.empty(e.b, 1, e.s, e.s, dtype=e.dt)) if e.knobs["attn"] == "eager" else None


def layer(name, make, config, **more):
    def run(e, x):
        c = config()
        c._attn_implementation = e.knobs["attn"]
        y = e.module(lambda: make(c))(x, attention_mask=mask(e), **{k: v(e) for k, v in more.items()})
        return y[0] if isinstance(y, tuple) else y
    case(H, plans=PLANS, name=name)(run)


def tables(e):
    return tuple(e.const(lambda: torch.empty(1, e.s, 4, dtype=e.dt)) for _ in range(2))


layer("gpt2_layer", lambda c: gpt2.GPT2Block(c, 0), lambda: gpt2.GPT2Config(n_embd=H, n_layer=2, n_head=4, vocab_size=96))
layer("opt_layer", lambda c: opt.OPTDecoderLayer(c, 0),
      lambda: opt.OPTConfig(ffn_dim=128, word_embed_proj_dim=H, **{k: v for k, v in SIZES.items() if k != "intermediate_size"}))
layer("opt_layer_normed_after", lambda c: opt.OPTDecoderLayer(c, 0),
      lambda: opt.OPTConfig(ffn_dim=128, word_embed_proj_dim=H, do_layer_norm_before=False,
                            **{k: v for k, v in SIZES.items() if k != "intermediate_size"}))
layer("gpt_neox_layer", lambda c: gpt_neox.GPTNeoXLayer(c, 0), lambda: gpt_neox.GPTNeoXConfig(rotary_pct=0.25, **SIZES),
      position_embeddings=tables)
layer("gpt_neox_layer_in_turn", lambda c: gpt_neox.GPTNeoXLayer(c, 0),
      lambda: gpt_neox.GPTNeoXConfig(rotary_pct=0.25, use_parallel_residual=False, **SIZES), position_embeddings=tables)
layer("biogpt_layer", lambda c: biogpt.BioGptDecoderLayer(c, 0), lambda: biogpt.BioGptConfig(**SIZES))


if __name__ == "__main__":
    main()
