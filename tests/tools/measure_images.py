#!/usr/bin/env python3
"""Measures steps of small vision-language models with their images, as tests/accuracy/images.csv holds them.

    measure_images.py ORACLE OUT.csv CONFIGS [TYPE ...]

ORACLE is a folder with measure_memory.py and fakecuda.py (the emulation of CUDA that the other tables were measured with);
torch and transformers 5.12 must be importable.  Rows are appended to OUT.csv, configs in effect written to CONFIGS.  Of each
type four steps are run: bf16 with SDPA, autocast written out with checkpoints, fp32 written out, padded with two images.
"""
import csv
import json
import os
import sys
import traceback

os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"
sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else ".")
import measure_memory as M                      # noqa: E402
import torch                                    # noqa: E402
import transformers                             # noqa: E402
from image_batches import (GRID, IMAGE, PATCH, SIDE, SIDES, crossed, cut, flat, latents, marked, masked,  # noqa: E402
                           masks_by_values, padded, paddle, pooled, squares, tiled, video_llama, with_values)


# ---- models ----

TEXT = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=2048, max_position_embeddings=4096, pad_token_id=0)
VIT = dict(hidden_size=192, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4, image_size=SIDE,
           patch_size=PATCH)
DEEP = dict(depth=3, hidden_size=192, intermediate_size=384, num_heads=4, patch_size=PATCH, out_hidden_size=256)
SPECIAL = dict(image_token_id=IMAGE, video_token_id=2002, vision_start_token_id=2003, vision_end_token_id=2004)
AXES = dict(rope_type="default", rope_theta=1e6, mrope_section=[8, 12, 12])
SPARSE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256)
SIGLIP = dict(VIT, model_type="siglip_vision_model", vision_use_head=False)
CLIP = dict(VIT, model_type="clip_vision_model", projection_dim=64)
MODELS = {}


def model(name, batch, text, vision, **config):
    sees = dict(vision_config=vision) if vision else {}
    MODELS[name] = (dict(config, **sees, model_type=name, text_config=dict(TEXT, **text)), batch)


def qwen():
    for name, more in (("qwen3_vl", {}), ("qwen3_vl_moe", SPARSE)):
        model(name, cut, dict(more, model_type=name + "_text", head_dim=64, rope_parameters=AXES),
              dict(DEEP, model_type=name + "_vision", deepstack_visual_indexes=[0, 1], num_position_embeddings=64), **SPECIAL)
    model("qwen2_vl", cut, dict(rope_parameters=AXES), dict(model_type="qwen2_vl_vision", depth=3, embed_dim=192,
          hidden_size=256, num_heads=4, patch_size=PATCH), **SPECIAL)
    model("qwen2_5_vl", cut, dict(rope_parameters=AXES), dict(DEEP, model_type="qwen2_5_vl_vision",
          fullatt_block_indexes=[1]), **SPECIAL)
    part = dict(rope_type="default", rope_theta=1e6, mrope_section=[4, 2, 2], partial_rotary_factor=0.25)
    for name, more in (("qwen3_5", {}), ("qwen3_5_moe", dict(SPARSE, shared_expert_intermediate_size=256))):
        model(name, cut, dict(more, model_type=name + "_text", head_dim=64, num_hidden_layers=4, linear_num_key_heads=4,
              linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32, rope_parameters=part),
              dict(DEEP, model_type=name + "_vision", num_position_embeddings=64), **SPECIAL)
    model("exaone4_5", cut, dict(model_type="exaone4", head_dim=64, sliding_window=None, layer_types=["full_attention"] * 3),
          dict(DEEP, model_type="exaone4_5_vision", num_key_value_heads=2, fullatt_block_indexes=[1]), **SPECIAL)
    model("paddleocr_vl", paddle, dict(model_type="paddleocr_vl_text", head_dim=64, rope_parameters=AXES),
          dict(VIT, model_type="paddleocr_vl_vision"), **SPECIAL)
    model("video_llama_3", video_llama, dict(model_type="qwen2"), dict(VIT, model_type="video_llama_3_vision"),
          image_token_id=IMAGE, video_token_id=2002)


def glm():
    sparse = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=256, first_k_dense_replace=1, n_group=1,
                  topk_group=1)
    for name, base, more in (("glm4v", "glm4v", {}), ("glm4v_moe", "glm4v_moe", sparse), ("glm46v", "glm4v", {}),
                             ("glm_ocr", "glm_ocr", {})):
        model(name, cut, dict(more, model_type=base + "_text", rope_parameters=dict(AXES, partial_rotary_factor=1.0)),
              dict(DEEP, model_type=base + "_vision", image_size=SIDE), image_token_id=IMAGE, video_token_id=2002,
              image_start_token_id=2003, image_end_token_id=2004, video_start_token_id=2005, video_end_token_id=2006)


def others():
    for name in ("idefics3", "smolvlm"):
        model(name, masked, dict(model_type="llama"), dict(VIT, model_type=name + "_vision"), image_token_id=IMAGE,
              scale_factor=2)
    model("lfm2_vl", padded, dict(model_type="lfm2", layer_types=["conv", "full_attention", "conv"],
          block_auto_adjust_ff_dim=False), dict(VIT, model_type="siglip2_vision_model", num_patches=GRID ** 2,
          vision_use_head=False), image_token_id=IMAGE, downsample_factor=2, projector_hidden_size=512)
    both = dict(image_token_index=IMAGE, image_token_id=IMAGE)
    model("llava_next", tiled, dict(model_type="llama"), CLIP, image_grid_pinpoints=[[SIDE, SIDE]], **both)
    model("llava_onevision", tiled, dict(model_type="qwen2"), SIGLIP, image_grid_pinpoints=[[SIDE, SIDE]],
          vision_aspect_ratio="anyres_max_9", video_token_id=2002, **both)
    model("shieldgemma2", flat(16, types=True), dict(model_type="gemma3_text", head_dim=64), SIGLIP, mm_tokens_per_image=16,
          **both)
    model("qianfan_ocr", flat(16), dict(model_type="qwen3", head_dim=64), dict(VIT, model_type="qianfan_ocr_vision",
          image_size=[SIDE, SIDE], patch_size=[PATCH, PATCH]), image_token_id=IMAGE, downsample_ratio=0.5)
    model("llama4", flat(16), dict(model_type="llama4_text", head_dim=64, intermediate_size_mlp=512, num_local_experts=4,
          num_hidden_layers=4), dict(VIT, model_type="llama4_vision_model", intermediate_size=768, vision_output_dim=256,
          projector_input_dim=256, projector_output_dim=256, pixel_shuffle_ratio=0.5), image_token_index=IMAGE,
          boi_token_index=2002, eoi_token_index=2003)


def apart():
    """Types whose images take a way of their own to the text."""
    model("idefics2", latents, dict(model_type="mistral", sliding_window=None), dict(VIT, model_type="idefics2_vision"),
          image_token_id=IMAGE, perceiver_config=dict(model_type="idefics2_perceiver", hidden_size=256,
          resampler_n_latents=16, resampler_depth=2, resampler_n_heads=4, resampler_head_dim=32, num_key_value_heads=2))
    model("ovis2", marked, dict(model_type="qwen2"), dict(VIT, model_type="ovis2_vision", vocab_size=512, hidden_stride=2,
          num_visual_indicator_tokens=5), image_token_id=IMAGE, hidden_size=256, vocab_size=2048,
          visual_indicator_token_ids=[2003, 2004, 2005, 2006, 2007])
    model("got_ocr2", squares(16, 256), dict(model_type="qwen2"), dict(model_type="got_ocr2_vision", hidden_size=192,
          num_hidden_layers=3, num_attention_heads=4, image_size=256, patch_size=16, mlp_dim=384, output_channels=64,
          window_size=7, global_attn_indexes=[1]), image_token_index=IMAGE, image_token_id=IMAGE)
    model("mllama", crossed, dict(model_type="mllama_text_model", num_hidden_layers=4, cross_attention_layers=[1, 3]),
          dict(model_type="mllama_vision_model", hidden_size=192, intermediate_size=384, num_hidden_layers=3,
               num_global_layers=2, attention_heads=4, image_size=SIDE, patch_size=PATCH, vision_output_dim=192 * 3,
               intermediate_layers_indices=[0, 1], max_num_tiles=4), image_token_index=IMAGE)
    model("gemma4", pooled, dict(model_type="gemma4_text", head_dim=64, global_head_dim=64, num_hidden_layers=4,
          layer_types=["sliding_attention", "full_attention"] * 2, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
          vocab_size_per_layer_input=2048), dict(VIT, model_type="gemma4_vision", num_key_value_heads=4, head_dim=48,
          pooling_kernel_size=3), vision_soft_tokens_per_image=16, image_token_id=IMAGE, audio_token_id=2002, video_token_id=2003, audio_config=None)


def omni():
    """Types that hear as well; the audio tower has a part in no step on images."""
    hears = dict(model_type="qwen2_5_omni_audio_encoder", d_model=64, encoder_layers=2, encoder_attention_heads=2,
                 encoder_ffn_dim=128, num_mel_bins=80, output_dim=256)
    model("qwen2_5_omni_thinker", cut, dict(model_type="qwen2_5_omni_text", rope_parameters=AXES),
          dict(DEEP, model_type="qwen2_5_omni_vision_encoder", fullatt_block_indexes=[1]), audio_config=hears,
          image_token_index=IMAGE, image_token_id=IMAGE, video_token_id=2002, audio_token_id=2005, vision_start_token_id=2003,
          vision_end_token_id=2004)


def drawing():
    """Types that draw as well, with what a step on seen images does not run."""
    vq = dict(model_type="janus_vqgan", base_channels=32, channel_multiplier=[1, 2], num_res_blocks=1, embed_dim=8,
              latent_channels=32, num_embeddings=64, projection_dim=256, image_token_embed_dim=256, double_latent=False,
              num_hidden_layers=2, num_patches=8)
    model("janus", flat(GRID ** 2), dict(model_type="llama"), dict(VIT, model_type="janus_vision_model", mlp_ratio=2.0,
          projection_dim=256, depth=2), image_token_id=IMAGE, vq_config=vq)


def queried():
    """Types whose queries attend to an image."""
    opt = dict(model_type="opt", ffn_dim=512, word_embed_proj_dim=256, max_position_embeddings=1024)
    model("blip-2", flat(16), opt, dict(VIT, model_type="blip_2_vision_model"), image_token_index=IMAGE, image_token_id=IMAGE,
          num_query_tokens=16, qformer_config=dict(model_type="blip_2_qformer", hidden_size=128, intermediate_size=256,
          num_hidden_layers=4, num_attention_heads=4, encoder_hidden_size=192))


def kept():
    """Types whose configs lie beside the table."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "accuracy", "images")
    for name, batch in (("llava", flat(64)), ("vipllava", flat(64)), ("aya_vision", flat(16)), ("cohere2_vision", flat(16)),
                        ("internvl", flat(16)), ("deepseek_vl", flat(64)), ("paligemma", flat(64, types=True)),
                        ("gemma3", flat(16, types=True)), ("mistral3", flat(16, sizes=True)),
                        ("lighton_ocr", flat(16, sizes=True))):
        with open(os.path.join(here, name + ".json")) as f:
            MODELS[name] = (dict(json.load(f), image_token_id=IMAGE), batch)


STEPS = (dict(precision="bf16", attn="sdpa", micro_batch=2),
         dict(precision="amp-bf16", attn="eager", micro_batch=3, grad_ckpt=True),
         dict(precision="fp32", attn="eager", micro_batch=4),
         dict(precision="bf16", attn="sdpa", micro_batch=2, padding_mask=True, images=2))


FRAMES = {"instructblipvideo": 4}       # images of a video
ALONE = ("blip",)                      # take one image
WRITTEN_OUT = ("blip", "blip-2", "instructblip", "instructblipvideo", "got_ocr2", "pp_chart2table")    # have no other attention, or not in all parts


def run(name, i, backend):
    config, batch = MODELS[name]
    step = dict(STEPS[i])
    if name in WRITTEN_OUT:
        step["attn"] = "eager"
    images = step.pop("images", 1)
    spec = M.normalise(dict(step, config=config, task="image-text", seq_len=256, id="%s-%d" % (name, i), model=name,
                            optimizer="adamw"))

    def make_batch(spec, cfg, be):
        d = batch(cfg, spec["micro_batch"], spec["seq_len"], images, M.weight_dtype(spec))
        if spec["padding_mask"]:
            d["attention_mask"] = torch.tensor([[1] * (spec["seq_len"] - 1) + [0]] + [[1] * spec["seq_len"]] *
                                               (spec["micro_batch"] - 1))
        return d
    M.make_batch = make_batch
    row = M.run_spec(spec, backend)
    row.update(id=spec["id"], images=2 if batch is tiled else 1 if name in ALONE else images * FRAMES.get(name, 1), image_size=SIDES.get(name, SIDE))
    return row, M.load_config(spec)


def without_cache(compute):
    def loss(spec, model, batch, be):
        return compute(dict(spec, task="causal-lm"), model, batch, be)
    return loss


def prepared(classes=None):
    """The backend, once everything that a step reads is known; classes: of a task's models."""
    auto, M.compute_loss = M.auto_class, without_cache(M.compute_loss)
    classes = classes or {"image-text": transformers.AutoModelForImageTextToText}
    M.auto_class = lambda task: classes[task] if task in classes else auto(task)
    with_values()
    backend = M.FakeBackend(True)
    masks_by_values()
    return backend


def measure(backend, column, models, run, steps, more=()):
    """Rows of all steps of the types asked for, with a column of their own (or more), and the types' configs."""
    out, configs = sys.argv[2:4]
    os.makedirs(configs, exist_ok=True)
    new = not os.path.exists(out)
    with open(out, "a", newline="") as f:
        w = csv.DictWriter(f, ["id", column, *more] + [c for c in M.COLS if c != "id"], restval="", extrasaction="ignore")
        if new:
            w.writeheader()
        for name in sys.argv[4:] or sorted(models):
            for i in range(steps):
                try:
                    row, config = run(name, i, backend)
                except Exception as e:          # said, and the next one tried
                    backend.peak_info = None
                    traceback.print_exc()
                    print("FAILED %s-%d: %s" % (name, i, str(e)[:200]), file=sys.stderr)
                    continue
                w.writerow(row)
                f.flush()
                with open(os.path.join(configs, name + ".json"), "w") as g:
                    json.dump(json.loads(config.to_json_string(use_diff=True)), g, indent=1, sort_keys=True)


def main():
    for table in (qwen, glm, others, apart, omni, drawing, queried, kept):
        table()
    measure(prepared(), "images", MODELS, run, len(STEPS))


if __name__ == "__main__":
    main()
