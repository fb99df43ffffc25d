#!/usr/bin/env python3
"""Measures still more types of vision-language models, as measure_images_apart.py does: those with two towers, or none.

    measure_images_more.py ORACLE OUT.csv CONFIGS [TYPE ...]
"""
import torch

from image_batches import GRID, IMAGE, flat
from measure_images import SIGLIP, model
from measure_images_apart import measure_tables

SAM = dict(hidden_size=192, num_hidden_layers=3, num_attention_heads=4, image_size=256, patch_size=16, mlp_dim=384,
           output_channels=64, window_size=7, global_attn_indexes=[1])


# ---- batches ----

def twice(cfg, b, s, n, dt):
    """Each image in two sizes, for two towers (DeepSeek-VL Hybrid)."""
    d = flat(GRID ** 2)(cfg, b, s, n, dt)
    d["high_res_pixel_values"] = torch.rand(b * n, 3, SAM["image_size"], SAM["image_size"]).to(dt)
    return d


# ---- models ----

def doubled():
    model("deepseek_vl_hybrid", twice, dict(model_type="llama"), SIGLIP, image_token_id=IMAGE,
          high_res_vision_config=dict(SAM, model_type="sam_vision_model"))


if __name__ == "__main__":
    measure_tables((doubled,))
