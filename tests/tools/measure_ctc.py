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
WRITTEN_OUT = ("wavlm", "wav2vec2-conformer", "wav2vec2-bert")         # or torch's own function: the classes know no sdpa
MODELS["wav2vec2-conformer"] = dict(BASE, model_type="wav2vec2-conformer", max_source_positions=350, hidden_act="swish")
MODELS["wav2vec2-conformer-rope"] = dict(BASE, model_type="wav2vec2-conformer", position_embeddings_type="rotary", conv_bias=True,
                                         max_source_positions=350, feat_extract_norm="layer")
MODELS["wav2vec2-bert"] = dict(BASE, model_type="wav2vec2-bert", feature_projection_input_dim=160)
MODELS["wav2vec2-bert-short"] = dict(MODELS["wav2vec2-bert"], hidden_act="gelu", left_max_position_embeddings=20,
                                     right_max_position_embeddings=3, conv_depthwise_kernel_size=15, mask_feature_prob=0.1)
ADAPTER = dict(add_adapter=True, hidden_dropout=0.0)
MODELS["wav2vec2-bert-adapter"] = dict(MODELS["wav2vec2-bert"], **ADAPTER)
MODELS["wav2vec2-bert-adapters"] = dict(MODELS["wav2vec2-bert"], add_adapter=True, num_adapter_layers=2, output_hidden_size=128,
                                        use_intermediate_ffn_before_adapter=True, adapter_act="gelu")
MODELS["wav2vec2-adapter"] = dict(BASE, model_type="wav2vec2", add_adapter=True, output_hidden_size=96, num_adapter_layers=2)


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
    if hasattr(model, "freeze_feature_encoder"):
        model.freeze_feature_encoder()
    for name, p in model.named_parameters():            # wav2vec2-bert has no convolutions: something else
        if "ffn1" in name and hasattr(model, "wav2vec2_bert"):
            p.requires_grad = False
    return model


def run(name, i, backend):
    step = dict(STEPS[i])
    banks = name.startswith("wav2vec2-bert")
    if name.startswith(WRITTEN_OUT):
        step["attn"] = "eager"
    frozen = step.pop("freeze", "") and ("ffn1" if banks else "feature_extractor")
    if name.startswith(WRITTEN_OUT[1:]):
        step["lora_targets"] = step.get("lora_targets", "").replace("q_proj+v_proj", "linear_q+linear_v")
    M.build_model = frozen_encoder if frozen else BUILD
    spec = M.normalise(dict(step, config=MODELS[name], task="ctc", seq_len=LABELS, id="%s-%d" % (name, i), model=name,
                            optimizer="adamw"))

    def make_batch(spec, cfg, be):
        b, n = spec["micro_batch"], RATE * SECONDS[i]
        d = dict(labels=torch.ones(b, LABELS, dtype=torch.long))
        if banks:
            n = 50 * SECONDS[i]
            d["input_features"] = torch.rand(b, n, 160).to(M.weight_dtype(spec))
        else:
            d["input_values"] = torch.rand(b, n).to(M.weight_dtype(spec))
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
    most, drawn = torch.Tensor.max, torch.rand
    torch.rand = lambda *a, **k: 0.5 if a == ([],) else drawn(*a, **k)         # whether a layer is left out
    torch.Tensor.max = lambda x, *a, **k: 0 if not a and not k and not x.is_floating_point() else most(x, *a, **k)
    for name in FAMILIES + ("data2vec-audio", "sew", "wav2vec2-conformer", "wav2vec2-bert"):
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
