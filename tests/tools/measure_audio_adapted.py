#!/usr/bin/env python3
"""Measures steps of speech-language models with LoRA and checkpoints, as tests/accuracy/audio_adapted.csv holds them: of each type
one with adapters in the tower, too, and one with adapters in the text's feed-forwards alone.

    measure_audio_adapted.py ORACLE OUT.csv CONFIGS [TYPE ...]
"""
import measure_audio as audio
import measure_images as images

STEPS = tuple(dict(precision="bf16-amp", attn="sdpa", micro_batch=2, grad_ckpt=True, lora_r=8, lora_targets=targets)
              for targets in ("q_proj+v_proj", "gate_proj+up_proj+down_proj"))


if __name__ == "__main__":
    images.STEPS = STEPS
    backend = audio.prepared_here()
    audio.chunks_are_known()
    images.measure(backend, "audio_seconds", audio.MODELS, audio.run, len(STEPS))
