#!/usr/bin/env python3
"""Measures more types of vision-language models, as measure_images.py does: those whose images take a way of their own.

    measure_images_apart.py ORACLE OUT.csv CONFIGS [TYPE ...]
"""
import torch
import torch._subclasses.fake_tensor as fake
import transformers.masking_utils as masks
from torch.utils._mode_utils import no_dispatch

import measure_images as images
import fakecuda
from image_batches import GRID, IMAGE, PATCH, SIDE, SIDES, cut, flat, known, pixels, squares, tiled, tokens
from measure_images import AXES, CLIP, DEEP, SPARSE, VIT, model


# ---- values that are known ----

def ones_are_known():
    """Masks that a model makes itself hide nothing, in a padded batch as in another."""
    plain, like = torch.ones, torch.ones_like

    def ones(*a, **kw):
        out = plain(*a, **kw)
        if isinstance(out, fake.FakeTensor) and not out.is_floating_point():
            with no_dispatch():
                out.constant = plain(*out.shape, dtype=out.dtype)
        return out

    def ones_like(x, *a, **kw):
        return ones(*x.shape, dtype=x.dtype) if not x.is_floating_point() and not a and not kw else like(x, *a, **kw)

    decided = masks._ignore_bidirectional_mask_sdpa

    def ignore(mask, *a, **kw):
        values = known(mask) if mask is not None else None
        with no_dispatch():
            hides_nothing = values is not None and bool(values.all())
        return hides_nothing or decided(mask, *a, **kw)

    torch.ones, torch.ones_like, masks._ignore_bidirectional_mask_sdpa = ones, ones_like, ignore


def kernels_refuse_strides():
    """Fused kernels want the elements of a head side by side (check_last_dim_stride_equals_1, sdp_utils.cpp)."""
    chosen = fakecuda.cuda_sdpa

    def sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if any(x.shape[-1] > 1 and x.stride(-1) != 1 for x in (query, key, value)):
            return torch.ops.aten._scaled_dot_product_attention_math.default(
                query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]
        return chosen(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    fakecuda.cuda_sdpa = sdpa


# ---- batches ----

def instructed(cfg, b, s, n, dt):
    """A text that the Q-Former reads beside its queries."""
    d = flat(cfg.num_query_tokens)(cfg, b, s, n, dt)
    return dict(d, qformer_input_ids=torch.tensor([[1 + i for i in range(s)]] * (b * n)))


def filmed(cfg, b, s, n, dt):
    """The same with a video of FRAMES["instructblipvideo"] images."""
    frames = images.FRAMES["instructblipvideo"]
    d = tokens(b, s, n, frames * cfg.num_query_tokens)
    return pixels(d, dt, b * n, frames, 3, SIDE, SIDE, qformer_input_ids=torch.tensor([[1 + i for i in range(s)]] * (b * n)))


def patches(cfg, b, s, n, dt):
    """Patches beside the text, which go through one layer (Fuyu)."""
    d = tokens(b, s, n, GRID ** 2)
    d["image_patches"] = torch.rand(b, n * GRID ** 2, 3 * PATCH ** 2).to(dt)
    return d


def encoded(cfg, b, s, n, dt):
    """Features in the text of an encoder (Florence 2), of a map a 32nd of the image's side, and their mean."""
    side = SIDES["florence2"]
    return pixels(tokens(b, s, n, (side // 32) ** 2 + 1), dt, b * n, 3, side, side)


def put(cfg, b, s, n, dt):
    """Where the features go is a mask of its own (KOSMOS-2)."""
    d = flat(cfg.latent_query_num)(cfg, b, s, n, dt)
    row = d["input_ids"][0].tolist()
    return dict(d, image_embeds_position_mask=torch.tensor([[int(x == IMAGE) for x in row]] * b))


def stills(cfg, b, s, n, dt):
    """Images of a type that takes videos as well (Video-LLaVA)."""
    d = flat(GRID ** 2)(cfg, b, s, n, dt)
    d["pixel_values_images"] = d.pop("pixel_values")
    return d


def captioned(cfg, b, s, n, dt):
    """One image that a text is about, without a place in it (BLIP)."""
    return pixels(tokens(b, s, 0, 0), dt, b, 3, SIDE, SIDE)


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
    model("llava_next_video", tiled, dict(model_type="llama"), CLIP, image_grid_pinpoints=[[SIDE, SIDE]], **BOTH)
    model("video_llava", stills, dict(model_type="llama"), CLIP, video_token_index=2002, **BOTH)


def asked():
    """Types whose queries attend to an image and to a text."""
    opt = dict(model_type="opt", ffn_dim=512, word_embed_proj_dim=256, max_position_embeddings=1024)
    asks = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4, encoder_hidden_size=192,
                vocab_size=1024)
    model("instructblip", instructed, opt, dict(VIT, model_type="instructblip_vision_model"), num_query_tokens=16,
          qformer_config=dict(asks, model_type="instructblip_qformer"), **BOTH)
    model("instructblipvideo", filmed, opt, dict(VIT, model_type="instructblipvideo_vision_model"), num_query_tokens=16,
          qformer_config=dict(asks, model_type="instructblipvideo_qformer"), video_token_index=IMAGE)


def windowed():
    sees = dict(hidden_size=192, num_hidden_layers=3, num_attention_heads=4, image_size=256, patch_size=16, mlp_dim=384,
                output_channels=64, window_size=4, global_attn_indexes=[1])
    model("pp_chart2table", squares(16, 256), dict(model_type="qwen2"), dict(sees, model_type="got_ocr2_vision"), **BOTH)


def mapped():
    text = dict(model_type="bart", d_model=256, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=512, decoder_ffn_dim=512,
                encoder_attention_heads=4, decoder_attention_heads=4)
    sees = dict(model_type="florence_vision", depths=[1, 1, 2, 1], embed_dim=[32, 64, 128, 256], num_heads=[1, 2, 4, 8],
                num_groups=[1, 2, 4, 8], window_size=5, projection_dim=256)
    model("florence2", encoded, text, sees, image_token_id=IMAGE)


def latent():
    model("kosmos-2", put, dict(model_type="kosmos_2_text_model", embed_dim=256, layers=3, ffn_dim=512, attention_heads=4),
          dict(VIT, model_type="kosmos_2_vision_model"), latent_query_num=16)


def described():
    text = dict(model_type="blip_text_model", encoder_hidden_size=192, max_position_embeddings=512, bos_token_id=1, sep_token_id=2,
                eos_token_id=2)
    model("blip", captioned, text, dict(VIT, model_type="blip_vision_model"), projection_dim=64, image_text_hidden_size=64)


def towerless():
    model("fuyu", patches, dict(model_type="persimmon", num_key_value_heads=4), None, image_token_id=IMAGE,
          patch_size=PATCH, image_size=SIDE, hidden_size=256)


def measure_tables(tables):
    """Rows of the types that these tables name, with what all of them need to be known."""
    for table in tables:
        table()
    kernels_refuse_strides()
    backend = images.prepared()
    ones_are_known()
    images.measure(backend, "images", images.MODELS, images.run, len(images.STEPS))


if __name__ == "__main__":
    measure_tables((moving, asked, windowed, mapped, latent, described, towerless))
