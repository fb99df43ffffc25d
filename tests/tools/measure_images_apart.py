#!/usr/bin/env python3
"""Measures more types of vision-language models, as measure_images.py does: those whose images take a way of their own.

    measure_images_apart.py ORACLE OUT.csv CONFIGS [TYPE ...]
"""
import torch

import measure_images as images
from measure_images import AXES, CLIP, DEEP, GRID, IMAGE, PATCH, SIDE, SPARSE, cut, flat, model, pixels, tokens


# ---- batches ----

def patches(cfg, b, s, n, dt):
    """Patches beside the text, which go through one layer (Fuyu)."""
    d = tokens(b, s, n, GRID ** 2)
    d["image_patches"] = torch.rand(b, n * GRID ** 2, 3 * PATCH ** 2).to(dt)
    return d


def stills(cfg, b, s, n, dt):
    """Images of a type that takes videos as well (Video-LLaVA)."""
    d = flat(GRID ** 2)(cfg, b, s, n, dt)
    d["pixel_values_images"] = d.pop("pixel_values")
    return d


# ---- models ----

BOTH = dict(image_token_index=IMAGE, image_token_id=IMAGE)
OMNI = dict(model_type="qwen3_omni_moe_audio_encoder", d_model=64, encoder_layers=2, encoder_attention_heads=2,
            encoder_ffn_dim=128, num_mel_bins=80, output_dim=256, downsample_hidden_size=32)


def moving():
    """Types for videos or sound, on images."""
    model("qwen3_omni_moe_thinker", cut, dict(SPARSE, model_type="qwen3_omni_moe_text", head_dim=64, rope_parameters=AXES),
          dict(DEEP, model_type="qwen3_omni_moe_vision_encoder", deepstack_visual_indexes=[0, 1],
               num_position_embeddings=64), audio_config=OMNI, audio_token_id=2005, image_token_id=IMAGE, video_token_id=2002,
          vision_start_token_id=2003, audio_start_token_id=2006)
    model("llava_next_video", images.tiled, dict(model_type="llama"), CLIP, image_grid_pinpoints=[[SIDE, SIDE]], **BOTH)
    model("video_llava", stills, dict(model_type="llama"), CLIP, video_token_index=2002, **BOTH)


def towerless():
    model("fuyu", patches, dict(model_type="persimmon", num_key_value_heads=4), None, image_token_id=IMAGE,
          patch_size=PATCH, image_size=SIDE, hidden_size=256)


def main():
    for table in (moving, towerless):
        table()
    images.measure(images.prepared(), "images", images.MODELS, images.run, len(images.STEPS))


if __name__ == "__main__":
    main()
