#!/usr/bin/env python3
"""Measures still more types of vision-language models, as measure_images_apart.py does: those with two towers, or none.

    measure_images_more.py ORACLE OUT.csv CONFIGS [TYPE ...]
"""
import torch
import transformers.models.chameleon.modeling_chameleon as chameleon

from image_batches import GRID, IMAGE, SIDES, flat, squares
from measure_images import MODELS, SIGLIP, TEXT, model
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


def coded():
    """Images as words of the text's own table (Chameleon); codes are names of letters that stand for digits."""
    codes, at = 8192, 2048
    words = {"IMGIMG%sZ" % "".join("ABCDEFGHIJ"[int(c)] for c in str(i)): at + i for i in range(codes)}
    vq = dict(embed_dim=32, num_embeddings=codes, base_channels=32, num_res_blocks=2)
    for name, side, more in (("chameleon", 128, dict(channel_multiplier=[1, 1, 2, 2, 4], latent_channels=32)),
                             ("chameleon-attending", 64, dict(channel_multiplier=[1, 1, 2, 4], latent_channels=64,
                                                              attn_resolutions=[16, 32]))):
        SIDES[name] = side
        MODELS[name] = (dict(TEXT, model_type="chameleon", vocab_size=12288, num_key_value_heads=4,
                             vocabulary_map=dict(words, **{"<image>": IMAGE}), vq_config=dict(vq, resolution=side, **more)),
                        squares(64, side))
    # the codes go to the host and back, where the emulation has no values
    chameleon.ChameleonImageVocabularyMapping.convert_img2bpe = lambda self, ids: torch.zeros(codes, dtype=torch.long)[ids]


if __name__ == "__main__":
    measure_tables((doubled, coded))
