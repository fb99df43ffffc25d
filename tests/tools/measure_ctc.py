#!/usr/bin/env python3
"""Measures steps of small speech encoders with a CTC head, as tests/accuracy/ctc.csv holds them.

    measure_ctc.py ORACLE OUT.csv CONFIGS [TYPE ...]

The loss stands for CUDA's: the emulation has no lengths to read, so what LossCTC.cu of PyTorch allocates is allocated here by hand
(log_alpha in the forward, log_beta and the gradient in the backward pass).
"""
import torch
import torch.nn.functional as F
import transformers

import measure_images as images
from measure_images import M

RATE, LABELS = 16000, 40
SECONDS = (3, 2, 4, 3, 3, 2, 5, 3, 4)
BASE = dict(hidden_size=192, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4, vocab_size=64, layerdrop=0.0,
            conv_dim=[64] * 7, num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=4, pad_token_id=0)
LARGE = dict(BASE, do_stable_layer_norm=True, feat_extract_norm="layer", conv_bias=True, attention_dropout=0.0,
             activation_dropout=0.0, hidden_dropout=0.0, feat_proj_dropout=0.0)
HALF = dict(precision="bf16-amp", attn="sdpa", micro_batch=2)
STEPS = (dict(precision="fp32", attn="sdpa", micro_batch=2), dict(precision="amp-bf16", attn="eager", micro_batch=3, grad_ckpt=True),
         dict(precision="bf16", attn="eager", micro_batch=2), dict(precision="amp-fp16", attn="sdpa", micro_batch=2, padding_mask=True),
         dict(HALF, lora_r=8, lora_targets="q_proj+v_proj"), dict(HALF, lora_r=4, lora_targets="all-linear", grad_ckpt=True),
         dict(precision="amp-fp16", attn="sdpa", micro_batch=4, grad_ckpt=True, padding_mask=True),
         dict(precision="amp-fp16", attn="sdpa", micro_batch=4, freeze="feature_extractor"),
         dict(precision="amp-bf16", attn="sdpa", micro_batch=3, freeze="feature_extractor", grad_ckpt=True))
FAMILIES = ("wav2vec2", "hubert", "unispeech", "unispeech-sat", "wavlm")
MODELS = {name + size: dict(config, model_type=name) for name in FAMILIES for size, config in (("", BASE), ("-large", LARGE))}
MODELS["data2vec-audio"] = dict(BASE, model_type="data2vec-audio", num_conv_pos_embeddings=3, conv_pos_kernel_size=19,
                                num_conv_pos_embedding_groups=4)
WIDE = dict(BASE, conv_dim=[32] + 4 * [64] + 4 * [96] + 4 * [128])
MODELS["sew"] = dict(WIDE, model_type="sew")
MODELS["sew-layer"] = dict(WIDE, model_type="sew", conv_dim=[64] * 6 + [192], conv_kernel=[10, 3, 3, 3, 3, 2, 2], squeeze_factor=3,
                           conv_stride=[5, 2, 2, 2, 2, 2, 2], feat_extract_norm="layer", conv_bias=True, num_conv_pos_embeddings=31,
                           mask_feature_prob=0.1)


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, log_probs, labels):
        t, b = log_probs.shape[:2]
        alpha = torch.empty(b, t, 2 * labels + 1, dtype=log_probs.dtype, device=log_probs.device)
        nll = torch.empty(b, dtype=log_probs.dtype, device=log_probs.device)
        ctx.save_for_backward(log_probs, alpha, nll)
        return nll.clone()

    @staticmethod
    def backward(ctx, grad):
        log_probs, alpha, nll = ctx.saved_tensors
        beta = torch.empty_like(alpha)
        out = torch.full_like(log_probs, float("-inf"))
        del beta
        return out, None


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    return Loss.apply(log_probs, LABELS).sum()


BUILD = M.build_model


def frozen_encoder(*a):
    model = BUILD(*a)
    model.freeze_feature_encoder()
    return model


def run(name, i, backend):
    step = dict(STEPS[i])
    if name.startswith("wavlm"):                # whose attention is torch's own function
        step["attn"] = "eager"
    frozen = step.pop("freeze", "")
    M.build_model = frozen_encoder if frozen else BUILD
    spec = M.normalise(dict(step, config=MODELS[name], task="ctc", seq_len=LABELS, id="%s-%d" % (name, i), model=name,
                            optimizer="adamw"))

    def make_batch(spec, cfg, be):
        b, n = spec["micro_batch"], RATE * SECONDS[i]
        d = dict(input_values=torch.rand(b, n).to(M.weight_dtype(spec)), labels=torch.ones(b, LABELS, dtype=torch.long))
        if spec["padding_mask"]:
            d["attention_mask"] = torch.ones(b, n, dtype=torch.long)
        return d
    M.make_batch = make_batch
    row = M.run_spec(spec, backend)
    row.update(id=spec["id"], audio_seconds=SECONDS[i], freeze=frozen)
    return row, M.load_config(spec)


def lengths_are_known():
    """Whether labels are in range, and how many there are, is read from the batch; SpecAugment draws its places on the host."""
    F.ctc_loss = torch.nn.functional.ctc_loss = ctc_loss
    torch.Tensor.masked_select = lambda x, mask: x.flatten()
    most = torch.Tensor.max
    torch.Tensor.max = lambda x, *a, **k: 0 if not a and not k and not x.is_floating_point() else most(x, *a, **k)
    for name in FAMILIES + ("data2vec-audio", "sew"):
        word = name.replace("-", "_")
        module = __import__("transformers.models.%s.modeling_%s" % (word.replace("_audio", ""), word), fromlist=["x"])
        module._compute_mask_indices = places(module._compute_mask_indices)


def places(drawn):
    return lambda shape, attention_mask=None, **kw: drawn(shape, **kw)


if __name__ == "__main__":
    backend = images.prepared({"ctc": transformers.AutoModelForCTC})
    M.compute_loss = lambda spec, model, batch, be: model(**batch).loss
    lengths_are_known()
    images.measure(backend, "audio_seconds", MODELS, run, len(STEPS), ("freeze",))
