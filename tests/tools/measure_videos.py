#!/usr/bin/env python3
"""Measures steps of small vision-language models with a video, as measure_images.py does those with images.

    measure_videos.py ORACLE OUT.csv CONFIGS [TYPE ...]

Of each type four steps are run, with 8, 8, 4 and 12 frames for every sample.

In an evaluation over padded frames (Gemma 4, SDPA) the emulation holds a mask that is not yet as wide as the kernel wants beside the
one that is; attention.cpp gives up the former (attn_mask.value() = preprocess_mask(...)), as the program does: 4.6 % of two rows.
"""
import torch

import measure_images as images
import measure_images_apart as apart
from image_batches import FEATURES, GRID, IMAGE, PATCH, SIDE, SIDES, flat, masked, tokens
from measure_images import M, MODELS

VIDEO = 2002                                    # the token that stands for a feature of a video
FRAMES = (8, 8, 4, 12)                          # of each step
BATCHES = {}


# ---- batches: as many frames for each sample ----

def videos(d, token=VIDEO):
    """The placeholders of images are those of a video."""
    for name in ("input_ids", "labels"):
        rows = [[token if x == IMAGE else x for x in row] for row in d[name].tolist()]
        d[name] = torch.tensor(rows)
    if "mm_token_type_ids" in d:
        d["mm_token_type_ids"] = torch.tensor([[2 * x for x in row] for row in d["mm_token_type_ids"].tolist()])
    return d


def folded(apart):
    """Patches of several frames as rows (Qwen, GLM); apart: timestamps stand between the pairs of frames."""
    def batch(cfg, b, s, frames, dt):
        v = cfg.vision_config
        times, n = frames // v.temporal_patch_size, GRID ** 2 // v.spatial_merge_size ** 2
        d = videos(tokens(b, s, times if apart else 1, n if apart else n * times, True))
        d.update(pixel_values_videos=torch.rand(b * times * GRID ** 2, v.in_channels * v.temporal_patch_size * PATCH ** 2).to(dt),
                 video_grid_thw=torch.tensor([[times, GRID, GRID]] * b))
        return d
    return batch


def framed(each, more=0):
    """Frames as they are, of each so many features, and more behind them all."""
    def batch(cfg, b, s, frames, dt):
        d = videos(tokens(b, s, 1, each * frames + more))
        d["pixel_values_videos"] = torch.rand(b, frames, 3, SIDE, SIDE).to(dt)
        return d
    return batch


def placed(cfg, b, s, frames, dt):
    """Frames as rows of patches with their places, padded to what 70 features take (Gemma 4's video processor)."""
    k, side = cfg.vision_config.pooling_kernel_size, SIDES["gemma4"] // PATCH
    n, most = (side // k) ** 2, 70 * k * k
    FEATURES["of each"] = [n]
    places = [[i % side, i // side] for i in range(side * side)] + [[-1, -1]] * (most - side * side)
    d = videos(tokens(b, s, frames, n, True), 2003)
    d.update(pixel_values_videos=torch.rand(b, frames, most, 3 * PATCH ** 2).to(dt),
             video_position_ids=torch.tensor([[places] * frames] * b))
    return d


def tables():
    """Batches of the types: frames that are images to the model, or videos of their own."""
    for table in (images.qwen, images.glm, images.others, images.omni, images.apart, images.kept, apart.moving):
        table()
    for name in ("qwen2_vl", "qwen2_5_vl", "exaone4_5", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"):
        BATCHES[name] = folded(False)
    for name in ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v", "glm4v_moe", "glm46v"):
        BATCHES[name] = folded(True)
    BATCHES.update(internvl=flat(GRID ** 2 // 4), smolvlm=masked, video_llava=framed(GRID ** 2 + 1),
                   llava_next_video=framed(GRID ** 2 // 4), llava_onevision=framed(GRID ** 2 // 4, 1), gemma4=placed)


def run(name, i, backend):
    config = MODELS[name][0]
    step = dict(images.STEPS[i], micro_batch=(2, 3, 2, 2)[i])
    step.pop("images", 1)
    spec = M.normalise(dict(step, config=config, task="image-text", seq_len=640, id="%s-%d" % (name, i), model=name,
                            optimizer="adamw"))

    def make_batch(spec, cfg, be):
        b, s = spec["micro_batch"], spec["seq_len"]
        d = BATCHES[name](cfg, b, s, FRAMES[i], M.weight_dtype(spec))
        if spec["padding_mask"]:
            d["attention_mask"] = torch.tensor([[1] * (s - 1) + [0]] + [[1] * s] * (b - 1))
        return d
    M.make_batch = make_batch
    row = M.run_spec(spec, backend)
    row.update(id=spec["id"], video_frames=FRAMES[i], image_size=SIDES.get(name, SIDE))
    return row, M.load_config(spec)


def main():
    tables()
    backend = images.prepared()
    images.measure(backend, "video_frames", BATCHES, run, len(images.STEPS))


if __name__ == "__main__":
    main()
