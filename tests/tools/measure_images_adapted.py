#!/usr/bin/env python3
"""Measures steps of vision-language models with LoRA whose text has experts, or whose tower is frozen or puts its tokens in another
order, as tests/accuracy/images_adapted.csv holds them.

    measure_images_adapted.py ORACLE OUT.csv CONFIGS [TYPE ...]
"""
import measure_images as images
from image_batches import IMAGE, PATCH, SIDE, flat

HALF = dict(precision="bf16-amp", attn="sdpa", micro_batch=2, lora_r=8, lora_targets="all-linear")
STEPS = (HALF, dict(HALF, precision="bf16", qlora=True, lora_r=4), dict(HALF, grad_ckpt=True),
         dict(HALF, grad_ckpt=True, lora_targets="gate_proj+up_proj+down_proj+q_proj"))

WINDOWED = tuple(dict(HALF, grad_ckpt=True, lora_targets=targets) for targets in ("gate_proj+up_proj+down_proj", "q_proj+v_proj"))


def sparse():
    images.model("internvl_moe", flat(16), dict(images.SPARSE, model_type="qwen3_moe", head_dim=64),
                 dict(images.VIT, model_type="internvl_vision", image_size=[SIDE, SIDE], patch_size=[PATCH, PATCH]),
                 image_token_id=IMAGE)
    images.MODELS["internvl_moe"][0]["model_type"] = "internvl"


if __name__ == "__main__":
    images.qwen()
    images.omni()
    sparse()
    backend = images.prepared()
    for names, images.STEPS in ((("qwen3_vl_moe", "internvl_moe"), STEPS),
                                (("qwen2_5_vl", "exaone4_5", "qwen2_5_omni_thinker", "qwen3_vl"), WINDOWED)):
        images.measure(backend, "images", {n: images.MODELS[n] for n in names}, images.run, len(images.STEPS))
